"""Blocks of elements between this runner and an SDK harness that has this package: columns.

What Beam has on the wire is elements one behind the other, each with its timestamp, windows and
pane; whoever reads it looks at each length before the next one is found. Here lengths come
first, all together, so that a block is cut by a few calls, and elements of one origin have that
once. A block is one or more of

    u32 count of elements | u32 count of headers: one for all, or one for each | u32 bytes behind
    u32 length of each header, key and value, column by column | headers | keys | values

with little-endian numbers. A header is what Beam writes before a value.
"""

import itertools
import operator
import struct
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from apache_beam.coders import BytesCoder, Coder, TupleCoder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.blocks import (
    BlockReader,
    BlockWriter,
    HeaderReader,
    HeaderWriter,
    MalformedBlockError,
    Origins,
)

_COUNTS = struct.Struct("<III")
_LENGTH = np.dtype("<u4")


class ElementWriter(Protocol):
    """``BlockWriter`` or ``ColumnWriter``."""

    def write(self, values: list[Any], origins: Origins, out: list[bytes]) -> None:
        """Append the pieces of elements to ``out``."""
        ...


class ElementReader(Protocol):
    """``BlockReader`` or ``ColumnReader``."""

    def read(self, block: bytes) -> Iterator[tuple[list[Any], Origins]]:
        """Yield the elements of a block, some at a time."""
        ...


def writer_for(coder: WindowedValueCoder) -> ElementWriter:
    """Return what writes to a harness that has this package, or in it."""
    return ColumnWriter(coder) if _columns(coder) else BlockWriter(coder)


def reader_for(coder: WindowedValueCoder) -> ElementReader:
    """Return what reads what ``writer_for`` has written."""
    return ColumnReader(coder) if _columns(coder) else BlockReader(coder)


def _columns(coder: WindowedValueCoder) -> int:
    """Return how many columns the values have; 0: they are no bytes, nor pairs of them."""
    value_coder = coder.wrapped_value_coder
    if isinstance(value_coder, TupleCoder):
        parts = value_coder.coders()
        return 2 if len(parts) == 2 and all(map(_is_of_bytes, parts)) else 0
    return int(_is_of_bytes(value_coder))


def _is_of_bytes(coder: Coder) -> bool:
    return isinstance(coder, BytesCoder)


class ColumnWriter:
    """Encodes elements that are bytes, or pairs of bytes. See ``BlockWriter``."""

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._header = HeaderWriter(coder)
        self._has_keys = _columns(coder) == 2

    def write(self, values: list[Any], origins: Origins, out: list[bytes]) -> None:
        """See ``BlockWriter.write``."""
        if not values:
            return
        one = origins[0]
        if all(map(operator.is_, origins, itertools.repeat(one))):
            headers = [self._header.encode(one)]
        else:
            headers = list(map(self._header.encode, origins))
        columns = zip(*values, strict=True) if self._has_keys else [values]
        pieces = [*headers, *itertools.chain.from_iterable(columns)]
        lengths = np.fromiter(map(len, pieces), _LENGTH, len(pieces)).tobytes()
        data = b"".join(pieces)
        out += (_COUNTS.pack(len(values), len(headers), len(lengths) + len(data)), lengths, data)


class ColumnReader:
    """Decodes what a ``ColumnWriter`` wrote in another process. See ``BlockReader``."""

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._headers = HeaderReader(coder)
        self._columns = _columns(coder)

    def read(self, block: bytes) -> Iterator[tuple[list[Any], Origins]]:
        """See ``BlockReader.read``."""
        position = 0
        while position < len(block):
            try:
                count, headers, size = _COUNTS.unpack_from(block, position)
            except struct.error as error:
                raise MalformedBlockError("it ends within the counts") from error
            position += _COUNTS.size
            end = position + size
            pieces = self._cut(block, position, end, headers + count * self._columns)
            if not count or headers not in (1, count):
                raise MalformedBlockError(f"{count} elements have {headers} headers")
            yield self._values(pieces, headers, count), self._origins(pieces, headers, count)
            position = end

    @staticmethod
    def _cut(block: bytes, start: int, end: int, count: int) -> list[bytes]:
        first = start + count * _LENGTH.itemsize
        if max(first, end) > len(block):
            raise MalformedBlockError("it ends within an element")
        lengths = np.frombuffer(block, _LENGTH, count, start)
        ends = (lengths.cumsum(dtype=np.int64) + first).tolist()
        if not ends or ends[-1] != end:
            raise MalformedBlockError("the lengths of its elements are not those of their bytes")
        return [block[at:to] for at, to in zip([first, *ends], ends, strict=False)]

    def _values(self, pieces: list[bytes], headers: int, count: int) -> list[Any]:
        if self._columns == 1:
            return pieces[headers:]
        return list(zip(pieces[headers : headers + count], pieces[headers + count :], strict=True))

    def _origins(self, pieces: list[bytes], headers: int, count: int) -> list[WindowedValue]:
        if headers == 1:
            return [self._headers.decode(pieces[0])] * count
        return list(map(self._headers.decode, pieces[:headers]))
