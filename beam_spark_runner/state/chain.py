"""Chains: the deltas from which a shard is rebuilt, and when older ones are no longer needed.

A shard is never written as a whole. A delta has the changes of its attempt, and also:

*A slice* of the shard: all records from the end of the previous delta's slice on, in the order of
keys, of about as many bytes as were changed. At the end of the shard, a new *lap* begins. A delta
is needed until the later slices have come around to the end of its own slice: by then, each key in
it is in a later slice or a later change. A delta whose slice is the whole shard needs no other
delta; in small shards, this is often so.

*Older deltas*, merged: the newest ones of the chain, as long as none is of a higher *tier* (power
of two of bytes) than the new delta has reached by then, and all together are not larger than
``LARGEST_BYTES``. Their records are added if they are still valid. The new delta replaces them.

Bounds, where each epoch changes d bytes of a shard of S bytes:

- An epoch writes 2 d, and at most ``LARGEST_BYTES`` more. A byte is written again for each tier
  that its delta rises by: on average that is 2 d log2(LARGEST_BYTES / 2 d) in an epoch, and nothing
  where 2 d is larger.
- A rebuild reads about 2 S: one lap of slices, and as many bytes of changes. They are in at most
  about 4 S / LARGEST_BYTES + log2(LARGEST_BYTES) deltas, since of two neighbours the newer one is
  of a lower tier, or both together are too large to be merged.
- An epoch writes one file, and reads those that it merges, about one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from beam_spark_runner._generated import store_pb2

LARGEST_BYTES = 8 << 20
"""The most bytes of records in a delta, if older ones are merged into it."""


class ShardVersion(NamedTuple):
    """A version of a shard: its content after one attempt."""

    epoch: int
    attempt: int  # random, of 63 bits


class SliceStart(NamedTuple):
    """Where the next slice begins."""

    lap: int
    key: bytes


class ChainedDelta(NamedTuple):
    """A delta of a chain.

    Attributes:
        version: The version of the shard that it completes.
        size: The bytes of its records.
        place: Where its slice ends.
    """

    version: ShardVersion
    size: int
    place: SliceStart


Chain: TypeAlias = tuple[ChainedDelta, ...]
"""The deltas, oldest first; the last one is the head. Empty: nothing was ever sealed."""


def head_of(chain: Chain) -> ShardVersion | None:
    """Return the version of the last delta of a chain; None: the chain is empty."""
    return chain[-1].version if chain else None


def still_needed(chain: Chain, place: SliceStart) -> Chain:
    """Return a chain without the deltas that the slices have made unnecessary.

    Args:
        chain: The chain of the previous version.
        place: Where the slice of the newer delta ends.
    """
    first = 0
    while first < len(chain) and place >= around(chain[first].place):
        first += 1
    return chain[first:]


def around(place: SliceStart) -> SliceStart:
    """Return the same place in the next lap."""
    return SliceStart(place.lap + 1, place.key)


def has_later_slice(link: ChainedDelta, chain: Chain) -> Callable[[bytes], bool]:
    """Return a function: whether a key is in the range of a later slice than a delta's own.

    The records that the delta has of such keys do not count any more.
    """
    (lap, first), (last_lap, end) = link.place, chain[-1].place
    if lap == last_lap:
        return lambda key: first <= key < end
    return lambda key: key >= first or key < end


def first_to_merge(chain: Chain, size: int) -> int:
    """Return the index of the first delta of a chain that is merged into a newer one.

    Args:
        chain: The deltas that are needed in addition to the newer one.
        size: The bytes of the newer one before older ones are merged into it.
    """
    first = len(chain)
    while first and (total := size + chain[first - 1].size) <= LARGEST_BYTES:
        if _tier(chain[first - 1].size) > _tier(size):
            break
        first, size = first - 1, total
    return first


def _tier(size: int) -> int:
    return size.bit_length()


def coded_chain(chain: Chain) -> Iterable[store_pb2.Link]:
    """Encode a chain."""
    for (epoch, attempt), size, (lap, key) in chain:
        yield store_pb2.Link(epoch=epoch, attempt=attempt, bytes=size, lap=lap, key=key)


def chain_of(coded: Sequence[store_pb2.Link]) -> Chain:
    """Decode a chain."""
    return tuple(
        ChainedDelta(
            ShardVersion(link.epoch, link.attempt), link.bytes, SliceStart(link.lap, link.key)
        )
        for link in coded
    )
