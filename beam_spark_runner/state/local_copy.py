"""The copy of a shard on the executor's disk: whose it is, whether it counts, how it is rebuilt.

The deltas are the truth, a copy only saves reading them. Nothing makes sure that its pages reach
the disk, so it counts only until the host is started anew. LMDB's own locks are off: who has
claimed a folder is its only user, from whatever threads, one at a time.
"""

import enum
import fcntl
import functools
import glob
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

import lmdb

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.state.delta import CorruptDeltaError, DeltaHeader, Version, read_delta
from beam_spark_runner.state.undo import undo_last_commit

NameOf: TypeAlias = Callable[[Version], str]
"""Names the delta of a version."""

OpenFile: TypeAlias = Callable[[str], BinaryIO]
"""Opens a delta by its name; raises ``FileNotFoundError`` if there is none."""

MAP_BYTES = 1 << 40
"""The most that a copy can hold. These are addresses, not memory, and the file has holes."""

RESERVE_BYTES = 128 << 20
"""What must stay free on the local disk."""

_UNCHECKED_BYTES = 16 << 20  # may be written before the disk is asked again
_PAGE_BYTES = 4096
_RECORDS = b"records"
_TAG = b"tag"
_LAYOUT = 1  # of a copy; one of another layout does not count


class ShardStorageError(CheckpointStorageError):
    """A disk or a storage that a shard needs is full, away, or broken."""

    def __str__(self) -> str:
        return f"the data of a shard cannot be read or written at {self.place}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to be the only one who works in a folder.

    Attributes:
        folder: of an LMDB environment; may not be there yet.
        is_private: another one has the folder of the shard; this one goes at the end.
    """

    folder: Path
    is_private: bool
    _lock_path: Path
    _lock: int

    def release(self, *, remove: bool) -> None:
        """Let go of the folder.

        Args:
            remove: what is in it.
        """
        try:
            if remove or self.is_private:
                _remove(self.folder)
            if self.is_private:
                self._lock_path.unlink(missing_ok=True)
        finally:
            # Closing alone would not do: a child that user code has forked has the file, too.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)


def claim_copy(local: Path, name: str) -> Claim:
    """Claim the copy of a shard; if another one has it, a folder for a copy of one's own.

    Args:
        local: folder of all copies.
        name: of the shard.

    Raises:
        OSError: the disk does not work.
    """
    folder, is_private = local / name, False
    while (lock := _try_lock(path := local / f"{folder.name}.lock")) is None:
        folder, is_private = local / f".{name}-{secrets.token_hex(8)}", True
    return Claim(folder, is_private, path, lock)


def _try_lock(path: Path) -> int | None:
    """Lock a file, which is made if it is missing; None: somebody else has it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had the lock before may have removed the file.
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def sweep(local: Path, name: str) -> None:
    """Remove the private copies of a shard that attempts left behind which were killed."""
    for path in local.glob(f".{glob.escape(name)}-*.lock"):
        if (lock := _try_lock(path)) is not None:
            Claim(path.with_suffix(""), True, path, lock).release(remove=True)


class Origin(enum.Enum):
    """How a task came by the copy of its shard."""

    KEPT = "the copy was at the head"
    UNDONE = "the copy was that of an attempt that does not count, which was undone"
    REBUILT = "the copy was made from deltas"


class Copy(NamedTuple):
    """An LMDB environment that counts, in its one write transaction, on the records."""

    env: lmdb.Environment
    txn: "lmdb.Transaction[bytes]"
    length: int  # of the chain of deltas that lead to it

    def commit(self, version: Version, length: int) -> None:
        """Commit what was written, as a version.

        Args:
            version: which it is from now on.
            length: of the chain of deltas that lead to it.

        Raises:
            lmdb.Error: the disk does not work.
        """
        self.txn.put(_TAG, _tag(version, length), db=self.env.open_db(None, self.txn))
        self.txn.commit()


def open_or_undo(folder: Path, head: Version | None) -> tuple[Copy, Origin] | None:
    """Open a copy if it is what the head names, or was so before its last attempt.

    Args:
        folder: claimed.
        head: None: the copy is to be empty.

    Returns:
        None: it does not count. It may have been undone.

    Raises:
        OSError: the disk does not work.
    """
    copy = open_copy(folder, head)
    if copy is not None:
        return copy, Origin.KEPT
    if not (folder / "data.mdb").exists() or not undo_last_commit(folder):
        return None
    copy = open_copy(folder, head)
    return None if copy is None else (copy, Origin.UNDONE)


def open_copy(folder: Path, head: Version | None) -> Copy | None:
    """Open a copy if it is there and is what the head names; None: it does not count."""
    if not (folder / "data.mdb").exists():
        return None
    try:
        env = _environment(folder)
    except lmdb.Error:
        return None
    try:
        with env.begin() as reading:
            tag = json.loads(reading.get(_TAG, b"null"))
        if isinstance(tag, list) and tag[:-1] == json.loads(_tag(head, 0))[:-1]:
            records = env.open_db(_RECORDS, create=False)
            return Copy(env, env.begin(records, write=True), tag[-1])
    except (lmdb.Error, ValueError):
        pass
    except BaseException:
        env.close()
        raise
    env.close()
    return None


def rebuild(folder: Path, open_file: OpenFile, name_of: NameOf, head: Version | None) -> None:
    """Make a copy anew, in place of any that is there, from the deltas that lead to the head.

    Args:
        folder: claimed.
        open_file: by the name of a delta.
        name_of: the shard's versions.
        head: None: the copy is empty.

    Raises:
        CorruptDeltaError: a delta is damaged or missing.
        ShardStorageError: the storage of the deltas cannot be read, or the disk is full.
        OSError: the disk does not work.
        lmdb.Error: likewise.
    """
    versions = _chain(open_file, name_of, head)
    _remove(folder)
    building = _building(folder)
    building.mkdir()
    try:
        env = _environment(building)
        try:
            records, room = env.open_db(_RECORDS), Room(building)
            for version in versions:
                with (
                    env.begin(records, write=True) as txn,
                    _reading(open_file, name_of(version)) as (_, changes),
                ):
                    for key, value in changes:
                        room.take(len(key) + len(value or b""))
                        if value is None:
                            txn.delete(key)
                        else:
                            txn.put(key, value)
            with env.begin(write=True) as txn:
                txn.put(_TAG, _tag(head, len(versions)))
        finally:
            env.close()
        building.rename(folder)
    except BaseException:
        _remove(folder)
        raise


def _chain(open_file: OpenFile, name_of: NameOf, head: Version | None) -> list[Version]:
    """Return the versions that lead to the head, the oldest first."""
    chain: list[Version] = []
    length = None
    version = head
    while version is not None:
        name = name_of(version)
        with _reading(open_file, name) as (header, _):
            pass
        if header.version != version:
            raise CorruptDeltaError(name, f"it is that of {header.version}")
        if length not in (None, header.length) or (header.parent is None) != (header.length == 1):
            raise CorruptDeltaError(name, f"it should not be number {header.length} of its chain")
        chain.append(version)
        version, length = header.parent, header.length - 1
    return chain[::-1]


@contextmanager
def _reading(
    open_file: OpenFile, name: str
) -> Iterator[tuple[DeltaHeader, Iterator[tuple[bytes, bytes | None]]]]:
    try:
        with open_file(name) as stream:
            yield read_delta(stream, name)
    except FileNotFoundError as error:
        raise CorruptDeltaError(name, "there is no such file") from error
    except OSError as error:
        raise ShardStorageError(name, str(error)) from error


class Room:
    """Refuses what a disk has no room for.

    LMDB writes through a memory map: on a full disk that is no error, but a signal (SIGBUS) that
    ends the process. So the disk is asked before, and some room is left to those who write
    at the same time.

    Args:
        folder: on the disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unchecked = _UNCHECKED_BYTES

    def take(self, size: int) -> None:
        """Count a record that will be written, of ``size`` bytes.

        Raises:
            OSError: the disk has no room for it.
        """
        self._unchecked += size + _PAGE_BYTES
        if self._unchecked < _UNCHECKED_BYTES:
            return
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if free < RESERVE_BYTES + size:
            raise OSError(f"only {free >> 20} MB are free on the disk")
        self._unchecked = 0


def _environment(folder: Path) -> lmdb.Environment:
    return lmdb.open(
        str(folder),
        map_size=MAP_BYTES,
        max_dbs=1,
        sync=False,
        metasync=False,
        writemap=True,
        lock=False,
    )


def _tag(version: Version | None, length: int) -> bytes:
    return json.dumps([_LAYOUT, boot_id(), version, length]).encode()


def _building(folder: Path) -> Path:
    """Return where a copy is while it is not complete."""
    return folder.with_name(f"{folder.name}.new")


def _remove(folder: Path) -> None:
    """Remove a copy, complete or not. What cannot be removed is noticed when it is in the way."""
    for each in (folder, _building(folder)):
        shutil.rmtree(each, ignore_errors=True)


@functools.cache
def boot_id() -> str:
    """Return what changes when the host is started anew; if it does not say, a process's own."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex()
