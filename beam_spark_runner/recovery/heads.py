"""Heads: the newest deltas of shards and of keys in a state store, as manifests have them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_spark_runner.core.key_groups import groups_of, overlapping


class DeltaId(NamedTuple):
    """A delta of a shard.

    Attributes:
        epoch: The epoch of the delta.
        attempt: The id of the task attempt that wrote it.
    """

    epoch: int
    attempt: int


class Head(NamedTuple):
    """The newest delta of a shard, and its chain.

    Attributes:
        delta: The newest delta.
        older: The other deltas of its chain, oldest first.
    """

    delta: DeltaId
    older: tuple[DeltaId, ...] = ()

    @property
    def deltas(self) -> tuple[DeltaId, ...]:
        """All deltas of the chain, oldest first."""
        return (*self.older, self.delta)


class EarlierHead(NamedTuple):
    """The head of a partition when the number of partitions changed; its chain stays as it is.

    Attributes:
        partition: The partition, of those that there were then.
        head: Its head.
    """

    partition: int
    head: Head


class Part(NamedTuple):
    """Key groups of one partition whose data is in the chains of earlier partitions, too.

    Attributes:
        first: The first key group.
        end: The key group after the last one.
        chains: The heads of these chains, oldest first. Each one has the changes that followed
            those of the previous one.
    """

    first: int
    end: int
    chains: tuple[EarlierHead, ...]


class KeyedHead(NamedTuple):
    """The chain of a stage's keys in a state store, of one partition.

    Attributes:
        own: The head of the partition's own chain. None: nothing has changed since the partition
            has its present key groups.
        parts: What earlier partitions had, in the order of key groups. Empty: nothing, or the
            slices of the partition's own chain have all of it.
    """

    own: Head | None = None
    parts: tuple[Part, ...] = ()

    def files(self, partition: int) -> Iterator[tuple[int, DeltaId]]:
        """Yield all deltas from which the keys are rebuilt, each with its partition.

        Args:
            partition: The partition of this head.
        """
        chains = {chain for part in self.parts for chain in part.chains}
        if self.own is not None:
            chains.add(EarlierHead(partition, self.own))
        for number, head in chains:
            for delta in head.deltas:
                yield number, delta

    def parts_in(self, partition: int, groups: range) -> Iterator[Part]:
        """Yield the parts of some of the key groups, if another partition continues from here.

        Args:
            partition: The partition of this head.
            groups: Key groups of this partition.
        """
        own = () if self.own is None else (EarlierHead(partition, self.own),)
        position = groups.start
        for part in self.parts:
            first, end = max(part.first, groups.start), min(part.end, groups.stop)
            if first >= end:
                continue
            if own and position < first:
                yield Part(position, first, own)
            yield Part(first, end, part.chains + own)
            position = end
        if own and position < groups.stop:
            yield Part(position, groups.stop, own)


_NONE = Head(DeltaId(0, 0))

KeyedHeads = Mapping[tuple[int, int], KeyedHead]
"""The heads of keys in a state store, by store number and partition."""


def repartitioned(
    heads: KeyedHeads, store: int, before: int, after: int, key_groups: int
) -> dict[tuple[int, int], KeyedHead]:
    """Return the heads of a stage for another number of partitions. No file changes.

    Args:
        heads: The heads so far.
        store: The store number of the stage.
        before: The number of its partitions so far.
        after: The number of its partitions from now on.
        key_groups: The number of key groups.
    """
    if before == after:
        return {place: head for place, head in heads.items() if place[0] == store}
    found: dict[tuple[int, int], KeyedHead] = {}
    for partition in range(after):
        mine = groups_of(partition, key_groups, after)
        parts: list[Part] = []
        for earlier in overlapping(partition, key_groups, after, before):
            theirs = groups_of(earlier, key_groups, before)
            shared = range(max(mine.start, theirs.start), min(mine.stop, theirs.stop))
            parts += heads.get((store, earlier), KeyedHead()).parts_in(earlier, shared)
        if parts:
            found[store, partition] = KeyedHead(None, tuple(parts))
    return found


def coded_heads(heads: Mapping[tuple[int, int], Head]) -> list[Any]:
    """Return the heads of shards as JSON."""
    return sorted([*place, *_coded(head)] for place, head in heads.items())


def heads_of(coded: Sequence[Any]) -> dict[tuple[int, int], Head]:
    """Return what ``coded_heads`` was made from."""
    return {(place, partition): _head_of(head) for place, partition, *head in coded}


def coded_keyed_heads(heads: KeyedHeads) -> list[Any]:
    """Return the heads of keys in a state store as JSON."""
    return [
        [*place, *_coded(head.own or _NONE), _coded_parts(head.parts)]
        for place, head in sorted(heads.items(), key=lambda each: each[0])
    ]


def keyed_heads_of(coded: Sequence[Any]) -> dict[tuple[int, int], KeyedHead]:
    """Return what ``coded_keyed_heads`` was made from."""
    heads = {}
    for store, partition, epoch, attempt, older, parts in coded:
        own = _head_of((epoch, attempt, older)) if epoch else None
        heads[store, partition] = KeyedHead(own, _parts_of(parts))
    return heads


def _coded(head: Head) -> list[Any]:
    return [*head.delta, head.older]


def _head_of(coded: Sequence[Any]) -> Head:
    epoch, attempt, older = coded
    return Head(DeltaId(epoch, attempt), tuple(DeltaId(*each) for each in older))


def _coded_parts(parts: Sequence[Part]) -> list[Any]:
    return [
        [part.first, part.end, [[each.partition, *_coded(each.head)] for each in part.chains]]
        for part in parts
    ]


def _parts_of(coded: Sequence[Any]) -> tuple[Part, ...]:
    return tuple(
        Part(
            first,
            end,
            tuple(EarlierHead(partition, _head_of(head)) for partition, *head in chains),
        )
        for first, end, chains in coded
    )
