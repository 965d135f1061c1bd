"""Shards: the keyed data of one level and partition.

A task works in one write transaction on a local copy of its shard, in LMDB, and the same changes
go to a delta. See ``local_copy`` and ``delta``.
"""

import functools
from collections.abc import Generator
from pathlib import Path

import lmdb

from beam_spark_runner.core.errors import InvariantError, RunnerError
from beam_spark_runner.state.chain import (
    Chain,
    ChainedDelta,
    ShardVersion,
    SliceStart,
    around,
    first_to_merge,
    head_of,
    still_needed,
)
from beam_spark_runner.state.claims import Claim, claim_copy, sweep
from beam_spark_runner.state.delta import DeltaWriter, delta_name
from beam_spark_runner.state.delta_files import DeltaFiles
from beam_spark_runner.state.local_copy import (
    DiskSpaceCheck,
    LocalCopy,
    Origin,
    Used,
    open_copy,
    open_or_undo,
    rebuild,
)
from beam_spark_runner.state.stored_deltas import NameOf, ShardStorageError, merge_deltas

KEY_LIMIT = 511
"""Bytes of the longest key: LMDB's limit."""


def open_shard(
    local: Path,
    deltas: DeltaFiles,
    *,
    lineage: str,
    level: int,
    partition: int,
    head: ShardVersion | None,
) -> "Shard":
    """Open a shard at its head, from the local copy or from the deltas.

    If the copy has a commit of an attempt that was not accepted, this is undone, see ``undo``.
    If another attempt on this host has claimed the copy, this one gets a private copy.

    Args:
        local: The folder of all local copies; created if it is missing.
        deltas: The storage of the head and of the older deltas of its chain.
        lineage: The lineage of the job.
        level: The number of the level.
        partition: The number of the partition.
        head: The version to open; None: the shard is empty.

    Returns:
        The shard; ``close`` must be called, or its context be left.

    Raises:
        CorruptDeltaError: A delta that is needed is damaged or missing.
        ShardStorageError: The local disk or the storage of the deltas does not work.
    """
    name = f"{lineage}-{level}-{partition}"
    name_of = functools.partial(delta_name, lineage, level, partition)
    try:
        local.mkdir(parents=True, exist_ok=True)
        claim = claim_copy(local, name)
        try:
            result = open_or_undo(claim.folder, head)
            if result is None:
                sweep(local, name)
                rebuild(claim.folder, deltas.open, name_of, head)
                copy = open_copy(claim.folder, head)
                if copy is None:
                    raise OSError("what was just built there cannot be opened")
                result = copy, Origin.REBUILT
        except BaseException:
            claim.release(remove=False)
            raise
    except (OSError, lmdb.Error) as error:
        raise ShardStorageError(str(local / name), str(error)) from error
    return Shard(claim, *result, deltas, name_of)


class Shard:
    """A shard that one attempt uses, until it is sealed or aborted. See ``open_shard``.

    Threads: one at a time. All methods raise ``ShardStorageError`` if the local disk does not
    work; then the shard is aborted. They raise ``InvariantError`` if it has ended, or for a key
    that is empty or longer than ``KEY_LIMIT``.

    Attributes:
        changed: Whether anything was put or deleted.
        origin: How the task got its local copy.
        chain: The deltas from which the shard is rebuilt: of the opened version, or of the
            sealed one.
    """

    def __init__(
        self,
        claim: Claim,
        copy: LocalCopy,
        origin: Origin,
        deltas: DeltaFiles,
        name_of: NameOf,
    ) -> None:
        self._claim = claim
        self._copy = copy
        self._has_ended = False
        self._deltas = deltas
        self._name_of = name_of
        self._writer: DeltaWriter | None = None
        self._room = DiskSpaceCheck(claim.folder)
        self._changes = 0
        self._is_broken = self._is_closed = False
        self.origin = origin
        self.chain = copy.chain

    def __enter__(self) -> "Shard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def changed(self) -> bool:
        return self._changes > 0

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None: it has none."""
        txn = self._txn_for(key)
        try:
            return txn.get(key)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        txn = self._txn_for(key)
        try:
            self._room.reserve(len(key) + len(value))
            txn.put(key, value)
            self._changes += 1
            (self._writer or self._new_writer()).put(key, value)
        except (OSError, lmdb.Error) as error:
            raise self._failed(error) from error

    def delete(self, key: bytes) -> bool:
        """Remove a key and its value; return whether there was one."""
        txn = self._txn_for(key)
        try:
            self._room.reserve(len(key))
            existed = txn.delete(key)
            if existed:
                self._changes += 1
                (self._writer or self._new_writer()).delete(key)
        except (OSError, lmdb.Error) as error:
            raise self._failed(error) from error
        return existed

    def scan(self, prefix: bytes, start: bytes = b"") -> Generator[tuple[bytes, bytes], None, None]:
        """Yield the keys that begin with a prefix, in order, with their values.

        Changes during the scan are seen: each step goes to the next key that then exists.

        Args:
            prefix: The prefix of all keys that are yielded.
            start: The least key that is yielded.
        """
        position, is_passed, changes = max(prefix, start), False, -1
        cursor = self._txn().cursor()
        while True:
            self._txn()
            try:
                if changes == self._changes:
                    is_valid = cursor.next()
                else:
                    is_valid = _seek(cursor, position, is_passed=is_passed)
                key, value = cursor.item()
            except lmdb.Error as error:
                raise self._failed(error) from error
            if not is_valid or not key.startswith(prefix):
                return
            position, is_passed, changes = key, True, self._changes
            yield key, value

    def delete_prefix(self, prefix: bytes) -> None:
        """Remove all keys that begin with a prefix."""
        cursor = self._txn().cursor()
        try:
            is_valid = _seek(cursor, prefix, is_passed=False)
            while is_valid and (key := cursor.key()).startswith(prefix):
                self._room.reserve(len(key))
                cursor.delete()
                self._changes += 1
                (self._writer or self._new_writer()).delete(key)
                # Deleting moves the cursor to the next key; at the end there is none.
                is_valid = bool(cursor.key())
        except (OSError, lmdb.Error) as error:
            raise self._failed(error) from error

    def used(self) -> Used:
        """Return what the local copy has, with uncommitted changes."""
        self._txn()
        try:
            return self._copy.used()
        except lmdb.Error as error:
            raise self._failed(error) from error

    def seal(self, version: ShardVersion) -> ShardVersion | None:
        """Store the changes as a delta, then commit them to the local copy.

        Args:
            version: The version of this attempt.

        Returns:
            The new head; the old one if nothing was changed: then no delta is stored.

        Raises:
            CorruptDeltaError: An older delta that is merged into the new one is damaged.
            ShardStorageError: The delta cannot be stored, or an older one cannot be read. The
                shard is aborted, whatever is raised.
        """
        self._txn()
        head = head_of(self.chain)
        if version == head:
            raise InvariantError(f"{self._name_of(version)} is sealed twice")
        if self._writer is None:
            self.abort()
            return head
        name = self._name_of(version)
        try:
            chain = self._completed(self._writer, version)
            self._writer.finish(chain)
        except (OSError, lmdb.Error) as error:
            raise self._failed(error) from error
        except RunnerError:
            self.abort()
            raise
        try:
            self._deltas.put(name, self._writer.path)
        except OSError as error:
            self.abort()
            raise ShardStorageError(name, str(error)) from error
        # A private copy is removed when the shard is closed.
        if not self._claim.is_private:
            try:
                self._copy.commit(chain)
            except lmdb.Error as error:
                raise self._failed(error) from error
        self._end()
        self.chain = chain
        return version

    def abort(self) -> None:
        """Discard all changes: the shard stays as it was at its head. May be called again."""
        if not self._has_ended:
            self._copy.txn.abort()
        self._end()

    def close(self) -> None:
        """Abort what is not sealed, and release the local copy. May be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.abort()
        finally:
            self._copy.env.close()
            # A copy on which LMDB or the disk failed is not opened again.
            self._claim.release(remove=self._is_broken)

    def _end(self) -> None:
        self._has_ended = True
        if self._writer is not None:
            self._writer.abandon()

    def _txn(self) -> "lmdb.Transaction[bytes]":
        if self._has_ended:
            raise InvariantError(f"the shard in {self._claim.folder} has ended")
        return self._copy.txn

    def _txn_for(self, key: bytes) -> "lmdb.Transaction[bytes]":
        if not 0 < len(key) <= KEY_LIMIT:
            raise InvariantError(f"a key of {len(key)} bytes in {self._claim.folder}")
        return self._copy.txn if not self._has_ended else self._txn()

    def _new_writer(self) -> DeltaWriter:
        """Begin the delta, with the first change."""
        # All attempts use one name: the file of a killed attempt is overwritten.
        self._writer = DeltaWriter(self._claim.folder / "sealing.delta")
        return self._writer

    def _completed(self, writer: DeltaWriter, version: ShardVersion) -> Chain:
        """Add a slice and older deltas to a delta, see ``chain``; return the chain it ends."""
        if not self.chain:
            return (ChainedDelta(version, writer.size, SliceStart(0, b"")),)
        place = self._add_slice(writer, self.chain[-1].place)
        chain = still_needed(self.chain, place)
        first = first_to_merge(chain, writer.size)
        merge_deltas(chain[first:], writer, self._copy.txn.get, self._deltas.open, self._name_of)
        return (*chain[:first], ChainedDelta(version, writer.size, place))

    def _add_slice(self, writer: DeltaWriter, start: SliceStart) -> SliceStart:
        """Add a slice of as many bytes as were changed; return where the next slice begins."""
        budget = writer.size
        for lap, first, end in ((start.lap, start.key, None), (start.lap + 1, b"", start.key)):
            for key, value in self.scan(b"", first):
                if end is not None and key >= end:
                    break
                if budget <= 0:
                    return SliceStart(lap, key)
                writer.put(key, value)
                budget -= len(key) + len(value)
        return around(start)

    def _failed(self, error: Exception) -> ShardStorageError:
        self._is_broken = True
        self.abort()
        return ShardStorageError(str(self._claim.folder), str(error))


def _seek(cursor: "lmdb.Cursor[bytes]", start: bytes, *, is_passed: bool) -> bool:
    """Move to the first key at or after ``start``, or only after it if ``is_passed``."""
    # A start longer than any key follows the key that is its beginning.
    is_valid = cursor.set_range(start[:KEY_LIMIT]) if start else cursor.first()
    if is_valid and ((key := cursor.key()) < start or (is_passed and key == start)):
        return cursor.next()
    return is_valid
