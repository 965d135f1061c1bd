"""Keyed deltas: the changes of one attempt to a stage's groups, in files like those of shards.

The key of a record is its group, its structure, and the name of the entry. First come the changes,
each entry once; then a slice, and what was merged of older deltas: see ``chain``. All of them are
the content of their version, so that it does no harm to apply more than the changes.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

from beam_spark_runner.recovery.copies import KNOWN_VERSIONS, KeyedHistory
from beam_spark_runner.recovery.manifest import DeltaId
from beam_spark_runner.state.chain import (
    LARGEST_BYTES,
    Chain,
    ChainedDelta,
    ShardVersion,
    SliceStart,
    first_to_merge,
    has_later_slice,
    head_of,
    still_needed,
)
from beam_spark_runner.state.delta import (
    CorruptDeltaError,
    DeltaWriter,
    KeyedEnd,
    read_chain,
    read_keyed_end,
)
from beam_spark_runner.state.remote.key_store import Change, Chunk
from beam_spark_runner.state.remote.keyed_keys import delta_key, split_delta_key
from beam_spark_runner.state.stored_deltas import NameOf, OpenFile, changes_of, reading

CHUNK_CHANGES = 500
"""The most changes of a chunk."""

CHUNK_BYTES = 256 << 10
"""The most bytes of a chunk's changes, but for the last one of them."""


class MergedKeys:
    """The keys of a delta's records, as long as older deltas may be merged into it."""

    def __init__(self) -> None:
        self._keys: set[bytes] | None = set()

    def add(self, key: bytes, size: int) -> bool:
        """Add the key of a record; return whether it is new.

        Args:
            key: The key.
            size: The bytes of all records so far.
        """
        if size > LARGEST_BYTES:
            self._keys = None  # nothing is merged into so large a delta
        if self._keys is None:
            return True
        is_new = key not in self._keys
        self._keys.add(key)
        return is_new


class KeyedDeltas:
    """The deltas of a partition's groups, up to its head.

    Args:
        open_file: Opens a delta by its name.
        name_of: Returns the name of the delta of a version.
        head: The version of the checkpoint; None: nothing was ever committed.

    Attributes:
        chain: The deltas from which the groups are rebuilt.
        history: The versions that lead to the head.

    Raises:
        CorruptDeltaError: The delta of the head is damaged or missing.
        ShardStorageError: It cannot be read.
    """

    def __init__(self, open_file: OpenFile, name_of: NameOf, head: ShardVersion | None) -> None:
        self._open_file, self._name_of = open_file, name_of
        self.chain: Chain = ()
        self._end = KeyedEnd()
        if head is not None:
            name = name_of(head)
            with reading(open_file, name) as stream:
                self.chain, self._end = read_chain(stream, name), read_keyed_end(stream, name)
            if head_of(self.chain) != head or self._end.known[-1:] != (head,):
                raise CorruptDeltaError(name, f"it is that of {head_of(self.chain)}")
        self.history = KeyedHistory(
            tuple(DeltaId(*each) for each in self._end.known),
            None if self._end.since is None else DeltaId(*self._end.since),
            tuple(DeltaId(*link.version) for link in self.chain),
        )

    def changes(self, version: ShardVersion, *, is_direct: bool) -> Iterator[tuple[int, Change]]:
        """Yield changes that lead to a version, with the group of each.

        Args:
            version: A version of the chain.
            is_direct: Only the changes since the previous version; only the head's delta has their
                number.

        Raises:
            CorruptDeltaError: The delta is damaged or missing.
            ShardStorageError: It cannot be read.
        """
        name = self._name_of(version)
        with changes_of(self._open_file, name, version) as found:
            records = itertools.islice(found, self._end.changes) if is_direct else found
            yield from map(_change_of, records)

    def content(self, groups: Collection[int]) -> Iterator[tuple[int, Change]]:
        """Yield changes that make the content of empty groups; see ``changes`` for the errors."""
        for link in self.chain:
            is_replaced = has_later_slice(link, self.chain)
            for group, change in self.changes(link.version, is_direct=False):
                key = delta_key(group, change.structure, change.name)
                if group in groups and not is_replaced(key):
                    yield group, change

    def finish(
        self,
        writer: DeltaWriter,
        version: ShardVersion,
        changes: int,
        place: SliceStart,
        keys: MergedKeys,
    ) -> Chain:
        """Merge older deltas into a newer one, and end it.

        Args:
            writer: The writer of the newer one, which has its changes and its slice.
            version: The version of the newer one.
            changes: The number of its changes.
            place: Where its slice ends.
            keys: The keys of its records.

        Returns:
            The new chain.
        """
        chain = still_needed(self.chain, place)
        since = self._end.since
        if len(chain) < len(self.chain):
            since = self.chain[len(self.chain) - len(chain) - 1].version
        first = first_to_merge(chain, writer.size)
        # Newest first: the first record of an entry is its content.
        for link in reversed(chain[first:]):
            with changes_of(self._open_file, self._name_of(link.version), link.version) as found:
                for key, value in found:
                    if keys.add(key, writer.size):
                        _write(writer, key, value)
        known = (*self._end.known, version)[-KNOWN_VERSIONS:]
        new_chain = (*chain[:first], ChainedDelta(version, writer.size, place))
        writer.finish(new_chain, KeyedEnd(changes, known, since))
        return new_chain


def write_change(writer: DeltaWriter, group: int, change: Change) -> bytes:
    """Write a change to a delta; return the key of its record."""
    key = delta_key(group, change.structure, change.name)
    _write(writer, key, change.value)
    return key


def chunks_of(
    changes: Iterable[tuple[int, Change]],
    expected: Mapping[int, ShardVersion | None],
    version: ShardVersion,
    *,
    is_direct: bool,
) -> Iterator[Chunk]:
    """Divide the changes that lead to a version into chunks, the same ones in each attempt.

    Args:
        changes: Changes with their groups.
        expected: The groups that are changed, with the version at which each is.
        version: The version.
        is_direct: See ``Chunk``.

    Yields:
        The chunks: for each group, those of its changes, in their order.
    """
    collected: dict[int, list[Change]] = {group: [] for group in expected}
    sizes, indexes = dict.fromkeys(expected, 0), dict.fromkeys(expected, 0)

    def chunk(group: int, *, is_last: bool) -> Chunk:
        made = Chunk(
            *(group, expected[group], version, is_direct, indexes[group], is_last),
            collected[group],
        )
        collected[group], sizes[group] = [], 0
        indexes[group] += 1
        return made

    for group, change in changes:
        if group not in collected:
            continue
        collected[group].append(change)
        sizes[group] += len(change.name) + len(change.value or b"")
        if len(collected[group]) >= CHUNK_CHANGES or sizes[group] >= CHUNK_BYTES:
            yield chunk(group, is_last=False)
    for group in expected:
        yield chunk(group, is_last=True)


def _write(writer: DeltaWriter, key: bytes, value: bytes | None) -> None:
    if value is None:
        writer.delete(key)
    else:
        writer.put(key, value)


def _change_of(record: tuple[bytes, bytes | None]) -> tuple[int, Change]:
    group, structure, name = split_delta_key(record[0])
    return group, Change(structure, name, record[1])
