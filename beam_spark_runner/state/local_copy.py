"""The copy of a shard on an executor's disk: whether it is up to date, and how it is rebuilt.

The deltas are authoritative; a copy only saves reading them. Its pages are never synced to the
disk, so it is valid only until the host reboots. LMDB's own locks are off: the attempt that has
claimed a folder is its only user, from one thread at a time.
"""

import enum
import functools
import os
import secrets
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import lmdb

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.state.chain import (
    Chain,
    ShardVersion,
    chain_of,
    coded_chain,
    has_later_slice,
    head_of,
)
from beam_spark_runner.state.claims import building_place, remove_copy
from beam_spark_runner.state.delta import CorruptDeltaError, read_chain
from beam_spark_runner.state.stored_deltas import NameOf, OpenFile, changes_of, reading
from beam_spark_runner.state.undo import undo_last_commit

MAP_BYTES = 1 << 40
"""The largest size of a copy. It reserves addresses, not memory, and the file is sparse."""

RESERVE_BYTES = 128 << 20
"""The space that must stay free on the local disk."""

_UNCHECKED_BYTES = 16 << 20  # written between two checks of the free space
_PAGE_BYTES = 4096
_RECORDS = b"records"
_TAG = b"tag"
_CHECKSUM = struct.Struct(">I")
_LAYOUT = b"\3"  # version of the copy's layout; a copy of another layout is not used


class Origin(enum.Enum):
    """How a task got the local copy of its shard."""

    KEPT = "the copy was at the head"
    UNDONE = "the copy was that of an attempt that does not count, which was undone"
    REBUILT = "the copy was made from deltas"


class Used(NamedTuple):
    """What a local copy has, with uncommitted changes.

    Attributes:
        size_bytes: The size of the pages that the records take.
        records: How many records there are: several of a key, and some of no key.
    """

    size_bytes: int
    records: int


class LocalCopy(NamedTuple):
    """An LMDB environment that is at the head, and its one write transaction."""

    env: lmdb.Environment
    txn: "lmdb.Transaction[bytes]"  # by default on the database of the records
    chain: Chain  # of the version of the copy

    def used(self) -> Used:
        """Return what the copy has. LMDB counts it as it writes, so that nothing is read.

        Raises:
            lmdb.Error: The disk does not work.
        """
        stat = self.txn.stat(self.env.open_db(_RECORDS, self.txn, create=False))
        pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
        return Used(int(stat["psize"] * pages), int(stat["entries"]))

    def commit(self, chain: Chain) -> None:
        """Commit the changes.

        Args:
            chain: The chain of the new version.

        Raises:
            lmdb.Error: The disk does not work.
        """
        self.txn.put(_TAG, _tag(chain), db=self.env.open_db(None, self.txn))
        self.txn.commit()


def open_or_undo(folder: Path, head: ShardVersion | None) -> tuple[LocalCopy, Origin] | None:
    """Open a copy that is at the head, or was so before its last commit, which is then undone.

    Args:
        folder: The folder of the copy, claimed.
        head: The version to open; None: the copy must be empty.

    Returns:
        None if the copy is missing or at another version; its last commit may then be undone.

    Raises:
        OSError: The disk does not work.
    """
    copy = open_copy(folder, head)
    if copy is not None:
        return copy, Origin.KEPT
    if not (folder / "data.mdb").exists() or not undo_last_commit(folder):
        return None
    copy = open_copy(folder, head)
    return None if copy is None else (copy, Origin.UNDONE)


def open_copy(folder: Path, head: ShardVersion | None) -> LocalCopy | None:
    """Open a copy that is at the head; None: it is missing, damaged, or at another version."""
    if not (folder / "data.mdb").exists():
        return None
    try:
        env = scratch_environment(folder)
    except lmdb.Error:
        return None
    try:
        with env.begin() as txn:
            coded = txn.get(_TAG)
        chain = None if coded is None else _chain_of(coded)
        if chain is not None and head_of(chain) == head:
            records = env.open_db(_RECORDS, create=False)
            return LocalCopy(env, env.begin(records, write=True), chain)
    except lmdb.Error:
        pass
    except BaseException:
        env.close()
        raise
    env.close()
    return None


def rebuild(folder: Path, open_file: OpenFile, name_of: NameOf, head: ShardVersion | None) -> None:
    """Replace a copy by a new one, made from the chain of deltas of the head.

    Args:
        folder: The folder of the copy, claimed.
        open_file: Opens a delta by its name.
        name_of: Returns the name of the delta of a version of the shard.
        head: The version of the new copy; None: it is empty.

    Raises:
        CorruptDeltaError: A delta is damaged or missing.
        ShardStorageError: The storage of the deltas cannot be read, or the disk is full.
        OSError: The disk does not work.
        lmdb.Error: The disk does not work.
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
        env = scratch_environment(building)
        try:
            records, room = env.open_db(_RECORDS), DiskSpaceCheck(building)
            for link in chain:
                name, version = name_of(link.version), link.version
                is_replaced = has_later_slice(link, chain)
                with (
                    env.begin(records, write=True) as txn,
                    changes_of(open_file, name, version) as changes,
                ):
                    for key, value in changes:
                        if is_replaced(key):
                            continue
                        room.reserve(len(key) + len(value or b""))
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


class DiskSpaceCheck:
    """Checks that a disk has room for records before they are written.

    LMDB writes through a memory map: on a full disk, a write does not fail with an error, but
    ends the process by a signal (SIGBUS). ``RESERVE_BYTES`` stay free for other writers.

    Args:
        folder: A folder on the disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unchecked = _UNCHECKED_BYTES

    def reserve(self, size: int) -> None:
        """Count a record that will be written, of ``size`` bytes.

        Raises:
            OSError: The disk has no room for it.
        """
        self._unchecked += size + _PAGE_BYTES
        if self._unchecked < _UNCHECKED_BYTES:
            return
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if free < RESERVE_BYTES + size:
            raise OSError(f"only {free >> 20} MB are free on the disk")
        self._unchecked = 0


def scratch_environment(folder: Path) -> lmdb.Environment:
    """Open an LMDB environment that is not synced, and has one user.

    Raises:
        lmdb.Error: The disk does not work.
    """
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
    tag = store_pb2.CopyTag(boot=boot_id(), chain=coded_chain(chain)).SerializeToString()
    return _LAYOUT + _CHECKSUM.pack(zlib.crc32(tag)) + tag


def _chain_of(coded: bytes) -> Chain | None:
    """Return the chain of a tag; None: it is damaged or of another layout, or after a reboot."""
    start = len(_LAYOUT) + _CHECKSUM.size
    content = coded[start:]
    if coded[:start] != _LAYOUT + _CHECKSUM.pack(zlib.crc32(content)):
        return None
    tag = store_pb2.CopyTag.FromString(content)
    return chain_of(tag.chain) if tag.boot == boot_id() else None


@functools.cache
def boot_id() -> str:
    """Return an id that changes with each boot of the host; else one of this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return secrets.token_hex()
