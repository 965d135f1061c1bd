"""Routes: signed 64-bit numbers by which rows are partitioned and sorted.

The high 8 bits are the destination's *code* within its level (signed, so that
control rows sort first and reports last), the low 56 bits a hash of key and
window, or any number that belongs to the wanted partition. With one column for both,
Spark uses its radix sort; sorting by two columns costs 40% more.
"""

import hashlib
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt
import xxhash

HASH_BITS = 56
HASH_MASK = (1 << HASH_BITS) - 1
DIGEST_BYTES = 32  # see ``digest_of``
HASH_SEED = 42  # Spark's seed, for ``xxhash64`` as for ``hash``
KEY_GROUPS = 128
"""The default number of key groups of a streaming pipeline."""

PLACES = 1 << 31
"""The number of places for ``routes_to_places``: Spark's hashes that are not negative."""

CONTROL_CODE = -128
FIRST_CODE = -127
REPORT_CODE = 127

_FAR = 0x9E3779B1  # a prime near 2^32 divided by the golden ratio

Int64Array: TypeAlias = npt.NDArray[np.int64]
_Uint32Array: TypeAlias = npt.NDArray[np.uint32]
_Uint64Array: TypeAlias = npt.NDArray[np.uint64]
_32 = np.uint64(32)


def route_prefix(code: int) -> int:
    """Return the route of a code whose hash bits are all zero."""
    return code << HASH_BITS


def routes_of_keys(coded_keys: Iterable[bytes], count: int, code: int) -> Int64Array:
    """Hash each key into a route.

    Args:
        coded_keys: The encoded key and window of each row.
        count: The number of rows.
        code: The destination's code.
    """
    bits = _hashes_of(coded_keys, count).astype(np.int64)
    return cast(Int64Array, bits | np.int64(route_prefix(code)))


def _hashes_of(coded_keys: Iterable[bytes], count: int) -> _Uint64Array:
    digest = xxhash.xxh64_intdigest
    hashes = np.fromiter(map(digest, coded_keys, repeat(HASH_SEED)), np.uint64, count)
    return cast(_Uint64Array, hashes & np.uint64(HASH_MASK))


def route_of_key(coded_key: bytes, code: int) -> int:
    """Hash one key into a route, as ``routes_of_keys`` does."""
    return (xxhash.xxh64_intdigest(coded_key, HASH_SEED) & HASH_MASK) | route_prefix(code)


def key_groups_of(hashes: _Uint64Array, groups: int) -> _Uint64Array:
    """Return the key group of each hash; groups are consecutive ranges of hashes.

    Args:
        hashes: Hashes of ``HASH_BITS`` bits.
        groups: The number of key groups, at most 2^31.
    """
    return cast(_Uint64Array, (hashes >> np.uint64(HASH_BITS - 32)) * np.uint64(groups) >> _32)


def partitions_of_groups(key_groups: _Uint64Array, groups: int, partitions: int) -> _Uint64Array:
    """Return the partition of each key group; partitions have consecutive ranges of groups.

    Source: Flink's KeyGroupRangeAssignment.computeOperatorIndexForKeyGroup.
    """
    return cast(_Uint64Array, key_groups * np.uint64(partitions) // np.uint64(groups))


def partitions_of_keys(
    coded_keys: Iterable[bytes], count: int, groups: int, partitions: int
) -> _Uint64Array:
    """Return the partition on which ``routes_in_key_groups`` puts each key.

    Args:
        coded_keys: The encoded keys.
        count: The number of keys.
        groups: The number of key groups.
        partitions: The number of partitions of the exchange.
    """
    hashes = _hashes_of(coded_keys, count)
    return partitions_of_groups(key_groups_of(hashes, groups), groups, partitions)


def routes_in_key_groups(
    coded_keys: Iterable[bytes], count: int, code: int, groups: int, partitions: int
) -> Int64Array:
    """Find a route for each key that belongs to the partition of its key group.

    Within a partition, routes are in the order of the hashes' high 24 bits.

    Args:
        coded_keys: The encoded key of each row.
        count: The number of rows.
        code: The destination's code.
        groups: The number of key groups.
        partitions: The number of partitions of the exchange, at most ``groups``.
    """
    hashes = _hashes_of(coded_keys, count)
    owners = partitions_of_groups(key_groups_of(hashes, groups), groups, partitions)
    low = (hashes & np.uint64(0xFFFFFFFF)) % np.uint64(PLACES // partitions)
    places = owners + np.uint64(partitions) * low
    prefix = (route_prefix(code) >> 32) & 0xFFFFFFFF
    high = (hashes >> _32).astype(np.uint32) | np.uint32(prefix)
    low_bits = _low_bits_with_murmur3(places.astype(np.int32), high)
    routes = (high.astype(np.uint64) << _32) | low_bits.astype(np.uint64)
    return cast(Int64Array, routes.view(np.int64))


def murmur3_of_longs(values: Int64Array, seed: int = HASH_SEED) -> npt.NDArray[np.int32]:
    """Return Spark's Murmur3_x86_32 of 8-byte numbers, as ``F.hash`` and ``repartition`` use it.

    Source: org.apache.spark.unsafe.hash.Murmur3_x86_32.hashLong.
    """
    with np.errstate(over="ignore"):
        bits = values.astype(np.uint64)
        low = (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        high = (bits >> np.uint64(32)).astype(np.uint32)
        state = _mix_state(np.full(values.shape, seed, np.uint32), _mix_key(low))
        state = _mix_state(state, _mix_key(high))
        state ^= np.uint32(8)
        state ^= state >> np.uint32(16)
        state *= np.uint32(0x85EBCA6B)
        state ^= state >> np.uint32(13)
        state *= np.uint32(0xC2B2AE35)
        state ^= state >> np.uint32(16)
    return state.astype(np.int32)


def _low_bits_with_murmur3(
    hashes: npt.NDArray[np.int32], high_bits: _Uint32Array, seed: int = HASH_SEED
) -> _Uint32Array:
    """Find the low 32 bits of numbers with given high bits and given hashes.

    Every step of ``murmur3_of_longs`` is inverted: an odd factor has an inverse modulo 2^32.
    """
    with np.errstate(over="ignore"):
        state = hashes.astype(np.uint32)
        state ^= state >> np.uint32(16)
        state *= _inverse(0xC2B2AE35)
        state ^= (state >> np.uint32(13)) ^ (state >> np.uint32(26))
        state *= _inverse(0x85EBCA6B)
        state ^= state >> np.uint32(16)
        state ^= np.uint32(8)
        state = _unmix_state(state, _mix_key(high_bits))
        key = _unmix_state(state, np.full(state.shape, seed, np.uint32))
        return _rotate(key * _inverse(0x1B873593), 17) * _inverse(0xCC9E2D51)


def _inverse(factor: int) -> np.uint32:
    inverse: np.uint32 = np.uint32(pow(factor, -1, 1 << 32))
    return inverse


def _rotate(value: _Uint32Array, bits: int) -> _Uint32Array:
    return cast(_Uint32Array, (value << np.uint32(bits)) | (value >> np.uint32(32 - bits)))


def _mix_key(key: _Uint32Array) -> _Uint32Array:
    return cast(_Uint32Array, _rotate(key * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593))


def _mix_state(state: _Uint32Array, key: _Uint32Array) -> _Uint32Array:
    return cast(_Uint32Array, _rotate(state ^ key, 13) * np.uint32(5) + np.uint32(0xE6546B64))


def _unmix_state(state: _Uint32Array, key: _Uint32Array) -> _Uint32Array:
    return cast(_Uint32Array, _rotate((state - np.uint32(0xE6546B64)) * _inverse(5), 19) ^ key)


def partitions_of_routes(routes: Int64Array, partitions: int) -> Int64Array:
    """Return the partition on which ``repartition(partitions, "route")`` puts each route."""
    return murmur3_of_longs(routes).astype(np.int64) % partitions


def routes_to_places(places: Int64Array, code: int) -> Int64Array:
    """Find routes to given places, whatever the number of partitions will be.

    With ``n`` partitions, place ``p`` is on partition ``p % n``. So consecutive places are spread
    evenly over any number of partitions, which tasks need not know.

    Args:
        places: Numbers from 0 to ``PLACES``, exclusively.
        code: The destination's code.

    Example:
        partitions_of_routes(routes_to_places(np.arange(8), -3), 3) == [0, 1, 2, 0, 1, 2, 0, 1]
    """
    prefix = route_prefix(code)
    high = np.full(places.shape, (prefix >> 32) & 0xFFFFFFFF, np.uint32)
    low = _low_bits_with_murmur3(places.astype(np.int32), high)
    return cast(Int64Array, low.astype(np.int64) | np.int64(prefix))


def first_place(task: int, partitions: int) -> int:
    """Choose the place at which a task that spreads rows over places begins.

    Tasks begin at different partitions, so that few rows of each do not all go to the first ones:
    at partition ``task % partitions`` if that number of partitions is the actual one, and far
    from each other if there are more partitions.
    """
    return task % partitions + partitions * (task * _FAR % (PLACES // 4) // partitions)


def routes_to_partitions(code: int, partitions: int) -> Sequence[int]:
    """Find one route for each partition: ``result[p]`` belongs to partition ``p``.

    Example:
        partitions_of_routes(np.array(routes_to_partitions(-3, 8)), 8) == [0, 1, …, 7]
    """
    return tuple(routes_to_places(np.arange(partitions, dtype=np.int64), code).tolist())


def digest_of(coded_key: bytes) -> bytes:
    """Return a digest that replaces a key too long to be repeated in every row of its group."""
    return hashlib.blake2b(coded_key, digest_size=DIGEST_BYTES).digest()
