"""The copy of a shard on an executor's disk: whether it is up to date, and how it is rebuilt.

The deltas are the truth, a copy only saves reading them. Nothing makes sure that its pages reach
the disk, so it counts only until the host is started anew. LMDB's own locks are off: who has
claimed a folder is its only user, from whatever threads, one at a time.
"""

import enum
import functools
import os
import secrets
from pathlib import Path
from typing import NamedTuple

import lmdb

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.state.chain import (
    Chain,
    Version,
    chain_of,
    coded_chain,
    has_later_slice,
    head_of,
)
from beam_spark_runner.state.claims import building_place, remove_copy
from beam_spark_runner.state.delta import CorruptDeltaError, read_chain, read_changes
from beam_spark_runner.state.stored_deltas import NameOf, OpenFile, reading
from beam_spark_runner.state.undo import undo_last_commit

MAP_BYTES = 1 << 40
"""The most that a copy can hold. These are addresses, not memory, and the file has holes."""

RESERVE_BYTES = 128 << 20
"""What must stay free on the local disk."""

_UNCHECKED_BYTES = 16 << 20  # may be written before the disk is asked again
_PAGE_BYTES = 4096
_RECORDS = b"records"
_TAG = b"tag"
_LAYOUT = b"\2"  # of a copy; one of another layout does not count


class Origin(enum.Enum):
    """How a task came by the copy of its shard."""

    KEPT = "the copy was at the head"
    UNDONE = "the copy was that of an attempt that does not count, which was undone"
    REBUILT = "the copy was made from deltas"


class Copy(NamedTuple):
    """An LMDB environment that counts, in its one write transaction, on the records."""

    env: lmdb.Environment
    txn: "lmdb.Transaction[bytes]"
    chain: Chain  # that leads to it

    def used_bytes(self) -> int:
        """Return the size of the pages that the records take, with those that were written.

        Raises:
            lmdb.Error: the disk does not work.
        """
        stat = self.txn.stat(self.env.open_db(_RECORDS, self.txn, create=False))
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return int(stat["psize"] * pages)

    def commit(self, chain: Chain) -> None:
        """Commit what was written.

        Args:
            chain: that leads to it.

        Raises:
            lmdb.Error: the disk does not work.
        """
        self.txn.put(_TAG, _tag(chain), db=self.env.open_db(None, self.txn))
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
        with env.begin() as txn:
            coded = txn.get(_TAG)
        chain = None if coded is None else _chain_of(coded)
        if chain is not None and head_of(chain) == head:
            records = env.open_db(_RECORDS, create=False)
            return Copy(env, env.begin(records, write=True), chain)
    except lmdb.Error:
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
    chain: Chain = ()
    if head is not None:
        with reading(open_file, name_of(head)) as stream:
            chain = read_chain(stream, name_of(head))
        if head_of(chain) != head:
            raise CorruptDeltaError(name_of(head), f"it is that of {head_of(chain)}")
    remove_copy(folder)
    building = building_place(folder)
    building.mkdir()
    try:
        env = _environment(building)
        try:
            records, room = env.open_db(_RECORDS), Room(building)
            for link in chain:
                name, is_replaced = name_of(link.version), has_later_slice(link, chain)
                with (
                    env.begin(records, write=True) as txn,
                    reading(open_file, name) as stream,
                ):
                    for key, value in read_changes(stream, name, link.version):
                        if is_replaced(key):
                            continue
                        room.take(len(key) + len(value or b""))
                        if value is None:
                            txn.delete(key)
                        else:
                            txn.put(key, value)
            with env.begin(write=True) as txn:
                txn.put(_TAG, _tag(chain))
        finally:
            env.close()
        building.rename(folder)
    except BaseException:
        remove_copy(folder)
        raise


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


def _tag(chain: Chain) -> bytes:
    tag = store_pb2.CopyTag(boot=boot_id(), chain=coded_chain(chain))
    return _LAYOUT + tag.SerializeToString()


def _chain_of(coded: bytes) -> Chain | None:
    """Return the chain of a tag; None: the copy does not count."""
    if not coded.startswith(_LAYOUT):
        return None
    tag = store_pb2.CopyTag.FromString(coded[len(_LAYOUT) :])
    return chain_of(tag.chain) if tag.boot == boot_id() else None


@functools.cache
def boot_id() -> str:
    """Return what changes when the host is started anew; if it does not say, a process's own."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex()
