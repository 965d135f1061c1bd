"""Rows that carry several values of one key.

Spark sorts and copies each row by itself, which takes longer than most steps take for an element.
So if many rows of a batch have the same key, their values travel in one row. Its value is

    u32 count | u32 length of each value, or ``_VARIED`` | only then: u32 length * count | values

with little-endian numbers.
"""

import itertools
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.held_values import ValuesByKey

_MAX_BYTES = 1 << 13
"""The longest value of a packed row: shorter than the least row limit, so that none is cut."""

_SAMPLE = 4096
_MAX_VALUES = 1024
_UNPACKED_ROWS = 10_000  # of a block: as many as Spark puts in a batch
_VARIED = (1 << 32) - 1
_HEADER = struct.Struct("<II")


def are_short(keys: Sequence[bytes], values: Sequence[bytes]) -> bool:
    """Return whether all keys and values are short enough to be packed."""
    return max(map(len, keys)) <= _MAX_BYTES and max(map(len, values)) <= _MAX_BYTES // 4


def have_several_values(keys: Sequence[bytes]) -> bool:
    """Return whether most keys have several rows, by a sample."""
    sample = keys[:_SAMPLE]
    return 2 * len(set(sample)) <= len(sample)


def packed(
    keys: Sequence[bytes], values: Sequence[bytes]
) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """Put the values of each key in as few rows as possible, in their order.

    Args:
        keys: The encoded key of each row.
        values: Their values, for which ``are_short`` holds.

    Yields:
        Flags of rows, their keys and their values.
    """
    by_key: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for key, value in zip(keys, values, strict=True):
        by_key[key].append(value)
    yield from packed_by_key(by_key, max(map(len, values)))


def packed_by_key(
    by_key: ValuesByKey, longest: int
) -> Iterator[tuple[int, list[bytes], list[bytes]]]:
    """Do as ``packed``, with the values of each key, the longest of which has a length."""
    per_row = max(2, min(_MAX_VALUES, _MAX_BYTES // (longest + _HEADER.size)))
    single_keys: list[bytes] = []
    singles: list[bytes] = []
    packed_keys: list[bytes] = []
    packs: list[bytes] = []
    for key, of_key in by_key.items():
        for start in range(0, len(of_key), per_row):
            some = of_key[start : start + per_row]
            if len(some) == 1:
                single_keys.append(key)
                singles += some
            else:
                packed_keys.append(key)
                packs.append(_pack(some))
    if packs:
        yield schema.PACKED, packed_keys, packs
    if singles:
        yield 0, single_keys, singles


def _pack(values: list[bytes]) -> bytes:
    lengths = [*map(len, values)]
    if min(lengths) == max(lengths):
        return _HEADER.pack(len(values), lengths[0]) + b"".join(values)
    coded = struct.pack(f"<{len(values)}I", *lengths)
    return b"".join((_HEADER.pack(len(values), _VARIED), coded, *values))


def unpacked(block: schema.RowBatch) -> Iterator[schema.RowBatch]:
    """Yield the rows of a block, with one value in each: in blocks, if they are many."""
    flags = block.dests & schema.PACKED
    if not flags.any():
        yield block
        return
    counts = np.ones(len(block), np.int64)
    for row in np.flatnonzero(flags).tolist():
        counts[row] = _HEADER.unpack_from(block.values[row])[0]
    ends = counts.cumsum()
    start = 0
    while start < len(block):
        read = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, read + _UNPACKED_ROWS, "right")))
        yield _unpacked(block, slice(start, end), counts[start:end])
        start = end


def _unpacked(block: schema.RowBatch, rows: slice, counts: schema.Int64Array) -> schema.RowBatch:
    dests = block.dests[rows]
    values: list[bytes] = []
    for value, is_packed in zip(block.values[rows], (dests & schema.PACKED).tolist(), strict=True):
        if is_packed:
            values += _values_of(value)
        else:
            values.append(value)
    keys = itertools.chain.from_iterable(map(itertools.repeat, block.keys[rows], counts.tolist()))
    return schema.RowBatch(
        dests=np.repeat(dests & ~np.int32(schema.PACKED), counts),
        routes=np.repeat(block.routes[rows], counts),
        orders=np.repeat(block.orders[rows], counts),
        keys=list(keys),
        values=values,
    )


def _values_of(value: bytes) -> list[bytes]:
    count, length = _HEADER.unpack_from(value)
    start = _HEADER.size
    if length == 0:
        return [b""] * count
    if length != _VARIED:
        return [value[at : at + length] for at in range(start, len(value), length)]
    lengths = struct.unpack_from(f"<{count}I", value, start)
    ends = itertools.accumulate(lengths, initial=start + 4 * count)
    return [value[at:to] for at, to in itertools.pairwise(ends)]
