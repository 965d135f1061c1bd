"""Chains: the deltas from which a shard is rebuilt, and when older ones are no longer needed.

Nothing is ever written as a whole. A delta has what its attempt has changed, and two things more:

*A slice* of the shard: all records from where the delta before has stopped, in the order of keys
and around, of about as many bytes as were changed. So the slices go through the shard in *laps*. A
delta is needed until the slices after it have come around to where it has stopped: whatever it
says of a key, a later slice or a later change says again. A delta whose slice is the whole shard
needs no other one, as is often so if the shard is small.

*Older deltas*, merged: the newest ones of the chain, as long as none is of a higher *tier* (power
of two of bytes) than what is in the new delta by then, and all together are not larger than
``LARGEST_BYTES``. Of their records those go in that still hold. The new delta takes their place.

Bounds, where each epoch changes d bytes of a shard of S bytes:

- An epoch writes 2 d, and at most ``LARGEST_BYTES`` besides. A byte is written again for each tier
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
"""Of records in a delta, if older ones are merged into it."""


class Version(NamedTuple):
    """Which state of a shard: that which one attempt left behind."""

    epoch: int
    attempt: int  # random, of 63 bits


class Place(NamedTuple):
    """Where the next slice begins."""

    lap: int
    key: bytes


class Link(NamedTuple):
    """A delta of a chain.

    Attributes:
        version: which it leads to.
        size: bytes of its records.
        place: how far the slices have come with it.
    """

    version: Version
    size: int
    place: Place


Chain: TypeAlias = tuple[Link, ...]
"""Oldest first; the last one is the head. Empty: nothing was ever sealed."""


def head_of(chain: Chain) -> Version | None:
    """Return which version a chain leads to."""
    return chain[-1].version if chain else None


def still_needed(chain: Chain, place: Place) -> Chain:
    """Return a chain without what the slices of a newer delta have made unnecessary.

    Args:
        chain: of the version before.
        place: how far the slices have come with the newer delta.
    """
    first = 0
    while first < len(chain) and place >= around(chain[first].place):
        first += 1
    return chain[first:]


def around(place: Place) -> Place:
    """Return the place one lap further on."""
    return Place(place.lap + 1, place.key)


def has_later_slice(link: Link, chain: Chain) -> Callable[[bytes], bool]:
    """Return what says of a key whether a slice after a delta of a chain has it, or has it not.

    Whatever that delta says of the key does not count any more.
    """
    (lap, first), (last_lap, end) = link.place, chain[-1].place
    if lap == last_lap:
        return lambda key: first <= key < end
    return lambda key: key >= first or key < end


def first_to_merge(chain: Chain, size: int) -> int:
    """Return from which of its deltas on a chain is merged into a newer one.

    Args:
        chain: what is needed besides the newer one.
        size: bytes of the newer one, if it is not merged with others.
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
        Link(Version(link.epoch, link.attempt), link.bytes, Place(link.lap, link.key))
        for link in coded
    )
