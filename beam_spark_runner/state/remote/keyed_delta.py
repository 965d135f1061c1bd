"""Keyed deltas: the changes of one attempt to a stage's groups, in files like those of shards.

The key of a record is its group, its structure, and the name of the entry. First come the changes,
each entry once; then a slice, and what was merged of older deltas: see ``chain``. All of them are
the content of their version, so that it does no harm to apply more than the changes.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from beam_spark_runner.recovery.copies import KNOWN_VERSIONS, KeyedHistory
from beam_spark_runner.recovery.heads import DeltaId, Head, KeyedHead
from beam_spark_runner.state.chain import (
    LARGEST_BYTES,
    Chain,
    ChainedDelta,
    ShardVersion,
    SliceStart,
    around,
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
from beam_spark_runner.state.delta_files import DeltaFiles
from beam_spark_runner.state.remote.kept_deltas import KeptDeltas
from beam_spark_runner.state.remote.key_store import Change, Chunk, Structure
from beam_spark_runner.state.remote.keyed_keys import delta_key, split_delta_key
from beam_spark_runner.state.remote.pieces import divided
from beam_spark_runner.state.stored_deltas import ShardStorageError, changes_of, reading

_FIRST = SliceStart(0, b"")

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


class KeyedChain(NamedTuple):
    """The deltas of one partition's groups up to one of them, which has this in its end.

    Attributes:
        partition: The partition that has written them.
        links: The deltas, oldest first.
        end: The end of the last one.
    """

    partition: int
    links: Chain
    end: KeyedEnd


class _KeyedPart(NamedTuple):
    """A part of a head: its groups, the earlier chains, and the versions up to the head."""

    groups: range
    chains: tuple[KeyedChain, ...]
    history: KeyedHistory


class KeyedDeltas:
    """The deltas of a partition's groups, up to its head.

    After the number of partitions has changed, the data of a group is in chains of earlier
    partitions, too (``recovery.heads``). They are needed until the slices of the partition's own
    chain have gone through all groups once.

    Args:
        files: The storage of deltas.
        name_of: Returns the name of the delta of a partition and version.
        partition: The partition.
        head: The head of the checkpoint; only the newest deltas of its chains are needed.

    Attributes:
        head: The head, with all deltas of the partition's own chain.
        own: The partition's own chain; None: it has none.

    Raises:
        CorruptDeltaError: The delta of a head is damaged or missing.
        ShardStorageError: It cannot be read.
    """

    def __init__(
        self,
        files: DeltaFiles,
        name_of: Callable[[int, ShardVersion], str],
        partition: int,
        head: KeyedHead,
    ) -> None:
        self._files, self._name_of = files, name_of
        self._partition = partition
        earlier = dict.fromkeys(each for part in head.parts for each in part.chains)
        chains = {each: self._read(each.partition, each.head.delta) for each in earlier}
        self.own = None if head.own is None else self._read(partition, head.own.delta)
        self._parts = [
            _KeyedPart(
                range(part.first, part.end),
                found := tuple(chains[each] for each in part.chains),
                _history_of((*found, *self._own_chains)),
            )
            for part in head.parts
        ]
        self.head = KeyedHead(None if self.own is None else _head_of(self.own.links), head.parts)
        self._own_history = _history_of(self._own_chains)
        self._written_in = {
            link.version: chain
            for chain in (*chains.values(), *self._own_chains)
            for link in chain.links
        }

    @property
    def slice_start(self) -> SliceStart | None:
        """Where the next slice begins; None: there is nothing that could be in it."""
        if self.own is not None:
            return self.own.links[-1].place
        return _FIRST if self._parts else None

    def history(self, group: int) -> KeyedHistory:
        """Return the versions that lead to the head of a group."""
        for part in self._parts:
            if group in part.groups:
                return part.history
        return self._own_history

    def changes(self, version: ShardVersion, *, is_direct: bool) -> Iterator[tuple[int, Change]]:
        """Yield changes that lead to a version, with the group of each.

        Args:
            version: A version of the chains.
            is_direct: Only the changes since the previous version. Only a chain's last delta has
                their number.

        Raises:
            CorruptDeltaError: The delta is damaged or missing.
            ShardStorageError: It cannot be read.
        """
        chain = self._written_in[version]
        with self._changes_of(self._name_of(chain.partition, version), version) as found:
            records = itertools.islice(found, chain.end.changes) if is_direct else found
            yield from map(_change_of, records)

    def content(self, groups: Collection[int]) -> Iterator[tuple[int, Change]]:
        """Yield changes that make the content of empty groups; see ``changes`` for the errors."""
        for part in self._parts:
            some = [group for group in groups if group in part.groups]
            for number, chain in enumerate(part.chains) if some else ():
                later = (*part.chains[number + 1 :], *self._own_chains)
                yield from self._content(chain, some, later)
        for chain in self._own_chains:
            yield from self._content(chain, groups, ())

    def has(self, version: ShardVersion) -> bool:
        """Whether a version is that of a delta in a chain."""
        return version in self._written_in

    def name(self, version: ShardVersion) -> str:
        """Return the name of a delta that this partition writes."""
        return self._name_of(self._partition, version)

    def put(self, version: ShardVersion, path: Path) -> None:
        """Store a delta that this partition has written; raises ``OSError``."""
        self._files.put(self.name(version), path)

    def finish(
        self,
        writer: DeltaWriter,
        version: ShardVersion,
        changes: int,
        place: SliceStart | None,
        keys: MergedKeys,
    ) -> KeyedHead:
        """Merge older deltas of this partition into a newer one, and end it.

        Args:
            writer: The writer of the newer one, which has its changes and its slice.
            version: The version of the newer one.
            changes: The number of its changes.
            place: Where its slice ends; None: there is nothing that could be in it.
            keys: The keys of its records.

        Returns:
            The new head.
        """
        place = place or _FIRST
        before, end = (self.own.links, self.own.end) if self.own is not None else ((), KeyedEnd())
        chain = still_needed(before, place)
        since = end.since
        parts = self.head.parts if place < around(_FIRST) else ()
        if self.head.parts and not parts:
            since = self._parts[0].chains[-1].end.known[-1]  # which this chain does not know
        if len(chain) < len(before):
            since = before[len(before) - len(chain) - 1].version
        first = first_to_merge(chain, writer.size)
        # Newest first: the first record of an entry is its content.
        for link in reversed(chain[first:]):
            with self._changes_of(self.name(link.version), link.version) as found:
                for key, value in found:
                    if keys.add(key, writer.size):
                        _write(writer, key, value)
        known = (*end.known, version)[-KNOWN_VERSIONS:]
        chain = (*chain[:first], ChainedDelta(version, writer.size, place))
        writer.finish(chain, KeyedEnd(changes, known, since))
        return KeyedHead(_head_of(chain), parts)

    @property
    def _own_chains(self) -> tuple[KeyedChain, ...]:
        return () if self.own is None else (self.own,)

    def _read(self, partition: int, head: DeltaId) -> KeyedChain:
        version = ShardVersion(*head)
        name = self._name_of(partition, version)
        with self._again_if_kept(name), reading(self._files.open, name) as stream:
            links, end = read_chain(stream, name), read_keyed_end(stream, name)
        if head_of(links) != version or end.known[-1:] != (version,):
            raise CorruptDeltaError(name, f"it is that of {head_of(links)}")
        return KeyedChain(partition, links, end)

    @contextmanager
    def _changes_of(
        self, name: str, version: ShardVersion
    ) -> Iterator[Iterator[tuple[bytes, bytes | None]]]:
        with self._again_if_kept(name), changes_of(self._files.open, name, version) as found:
            yield found

    @contextmanager
    def _again_if_kept(self, name: str) -> Iterator[None]:
        """Remove a damaged file from this host, and have the epoch repeated.

        Some of its changes may have been applied, so that it is not enough to read another file.
        """
        try:
            yield
        except CorruptDeltaError as error:
            if isinstance(self._files, KeptDeltas) and self._files.forget(name):
                raise ShardStorageError(name, f"this host's copy of it: {error}") from error
            raise

    def _content(
        self, chain: KeyedChain, groups: Collection[int], later: Sequence[KeyedChain]
    ) -> Iterator[tuple[int, Change]]:
        """Yield the records of a chain that still count, since no later slice has their keys."""
        ends = [each.links[-1].place for each in later]
        # Else that chain would have all data, and earlier ones would not be needed.
        assert all(each.lap == 0 for each in ends)
        end_of_slices = max((each.key for each in ends), default=b"")
        for link in chain.links:
            is_replaced = has_later_slice(link, chain.links)
            for group, change in self.changes(link.version, is_direct=False):
                key = delta_key(group, change.structure, change.name)
                if group in groups and key >= end_of_slices and not is_replaced(key):
                    yield group, change


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

    for group, whole in changes:
        if group not in collected:
            continue
        for change in divided(whole) if whole.structure is Structure.OUTLYING else (whole,):
            collected[group].append(change)
            sizes[group] += len(change.name) + len(change.value or b"")
            if len(collected[group]) >= CHUNK_CHANGES or sizes[group] >= CHUNK_BYTES:
                yield chunk(group, is_last=False)
    for group in expected:
        yield chunk(group, is_last=True)


def _head_of(chain: Chain) -> Head:
    *older, newest = (DeltaId(*link.version) for link in chain)
    return Head(newest, tuple(older))


def _history_of(chains: Sequence[KeyedChain]) -> KeyedHistory:
    """Return the history of groups whose data is in some chains, oldest first."""
    known: tuple[ShardVersion, ...] = ()
    for chain in reversed(chains):
        known = (*chain.end.known, *known)
        if len(chain.end.known) == KNOWN_VERSIONS:
            break  # between this chain and an earlier one, there may be versions that it has lost
    since = chains[0].end.since if chains else None
    return KeyedHistory(
        tuple(DeltaId(*each) for each in known),
        None if since is None else DeltaId(*since),
        tuple(DeltaId(*link.version) for chain in chains for link in chain.links),
    )


def _write(writer: DeltaWriter, key: bytes, value: bytes | None) -> None:
    if value is None:
        writer.delete(key)
    else:
        writer.put(key, value)


def _change_of(record: tuple[bytes, bytes | None]) -> tuple[int, Change]:
    group, structure, name = split_delta_key(record[0])
    return group, Change(structure, name, record[1])
