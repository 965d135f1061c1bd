"""Columnar blocks of elements, exchanged with an SDK harness that has this package.

Beam's encoding is a sequence of elements, each with its timestamp, windows and pane; a reader
must decode each length to find the next one. Here all lengths come first, so that a block is cut
by a few calls, and elements of one origin share a single header. A block is one or more of

    u32 count of elements | u32 count of headers: one for all, or one for each | u32 bytes after it
    only for groups: u32 count of values for each; 2**32 - 1 if a token replaces the values
    u32 length of each header, key and value, column by column | headers | keys | values

with little-endian numbers. A header is Beam's encoding of timestamp, windows and pane.
"""

import enum
import itertools
import operator
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder, WindowedValueCoder

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.user_calls import map_all
from beam_spark_runner.harness.chunking import have_one_origin
from beam_spark_runner.harness.codec.blocks import (
    BlockReader,
    BlockWriter,
    GroupToken,
    HeaderReader,
    HeaderWriter,
    Origins,
)
from beam_spark_runner.portable.bounded import MalformedBytesError

_COUNTS = struct.Struct("<III")
_U32 = np.dtype("<u4")
_TOKEN = (1 << 32) - 1
_FIRST, _SECOND = operator.itemgetter(0), operator.itemgetter(1)


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
    """Return the writer for an edge between the runner and a harness that has this package."""
    return ColumnWriter(coder) if _shape_of(coder) else BlockWriter(coder)


def reader_for(coder: WindowedValueCoder) -> ElementReader:
    """Return the reader of blocks that the writer of ``writer_for`` has written."""
    return ColumnReader(coder) if _shape_of(coder) else BlockReader(coder)


class _Shape(enum.Enum):
    """The structure of the values."""

    BYTES = enum.auto()
    PAIRS = enum.auto()  # of bytes
    GROUPS = enum.auto()  # bytes, and a list of bytes


def _shape_of(coder: WindowedValueCoder) -> _Shape | None:
    """Return the shape of the coder's values; None if they cannot be written in columns."""
    value_coder = coder.wrapped_value_coder
    if isinstance(value_coder, BytesCoder):
        return _Shape.BYTES
    if isinstance(value_coder, TupleCoder):
        match value_coder.coders():
            case (BytesCoder(), BytesCoder()):
                return _Shape.PAIRS
            case (BytesCoder(), IterableCoder() as values) if isinstance(
                values.value_coder(), BytesCoder
            ):
                return _Shape.GROUPS
    return None


class ColumnWriter:
    """Encodes elements that are bytes, pairs of bytes, or groups. See ``BlockWriter``.

    The values of a group may be any iterable, or a ``GroupToken``.
    """

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._header = HeaderWriter(coder)
        self._shape = _shape_of(coder)

    def write(self, values: list[Any], origins: Origins, out: list[bytes]) -> None:
        """See ``BlockWriter.write``."""
        if len(values) != len(origins):
            raise InvariantError(f"{len(values)} elements have {len(origins)} origins")
        if not values:
            return
        if have_one_origin(origins):
            headers = [self._header.encode(origins[0])]
        else:
            headers = map_all(self._header.encode, origins)
        sizes = b""
        match self._shape:
            case _Shape.BYTES:
                pieces = headers + values
            case _Shape.PAIRS:
                pieces = [*headers, *map(_FIRST, values), *map(_SECOND, values)]
            case _:
                groups = [_listed(group) for _, group in values]
                sizes = _numbers(map(_size_of, groups), len(groups))
                pieces = [*headers, *map(_FIRST, values), *itertools.chain.from_iterable(groups)]
        lengths = _numbers(map(len, pieces), len(pieces))
        data = b"".join(pieces)
        size = len(sizes) + len(lengths) + len(data)
        out += (_COUNTS.pack(len(values), len(headers), size), sizes, lengths, data)


def _listed(group: Any) -> list[bytes] | tuple[GroupToken]:
    if type(group) is GroupToken:
        return (group,)
    return group if type(group) is list else list(group)


def _size_of(group: list[bytes] | tuple[GroupToken]) -> int:
    return _TOKEN if type(group) is tuple else len(group)


def _numbers(numbers: Iterable[int], count: int) -> bytes:
    return np.fromiter(numbers, _U32, count).tobytes()


class ColumnReader:
    """Decodes what a ``ColumnWriter`` wrote in another process. See ``BlockReader``."""

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._headers = HeaderReader(coder)
        self._shape = _shape_of(coder)

    def read(self, block: bytes) -> Iterator[tuple[list[Any], Origins]]:
        """See ``BlockReader.read``."""
        position = 0
        while position < len(block):
            try:
                count, headers, size = _COUNTS.unpack_from(block, position)
            except struct.error as error:
                raise MalformedBytesError("it ends within the counts") from error
            if not count or headers not in (1, count):
                raise MalformedBytesError(f"{count} elements have {headers} headers")
            position += _COUNTS.size
            end = position + size
            match self._shape:
                case _Shape.BYTES:
                    pieces = _cut(block, position, end, headers + count)
                    values: list[Any] = pieces[headers:]
                case _Shape.PAIRS:
                    pieces = _cut(block, position, end, headers + 2 * count)
                    first = headers + count
                    values = list(zip(pieces[headers:first], pieces[first:], strict=True))
                case _:
                    sizes = _u32s(block, position, count)
                    tokens = sizes == _TOKEN
                    flat = int(sizes.sum(where=~tokens, dtype=np.int64)) + int(tokens.sum())
                    position += count * _U32.itemsize
                    pieces = _cut(block, position, end, headers + count + flat)
                    groups = _groups(pieces, headers + count, sizes.tolist())
                    keys = pieces[headers : headers + count]
                    values = list(zip(keys, groups, strict=True))
            decode = self._headers.decode
            if headers == 1:
                yield values, [decode(pieces[0])] * count
            else:
                yield values, map_all(decode, pieces[:headers])
            position = end


def _u32s(block: bytes, start: int, count: int) -> "np.ndarray[Any, np.dtype[np.uint32]]":
    if start + count * _U32.itemsize > len(block):
        raise MalformedBytesError("it ends within an element")
    return np.frombuffer(block, _U32, count, start)


def _cut(block: bytes, start: int, end: int, count: int) -> list[bytes]:
    """Return ``count`` pieces; their lengths begin at ``start``, the last piece ends at ``end``."""
    lengths = _u32s(block, start, count)
    first = start + count * _U32.itemsize
    ends = (lengths.cumsum(dtype=np.int64) + first).tolist()
    if end > len(block):
        raise MalformedBytesError("it ends within an element")
    if ends[-1] != end:
        raise MalformedBytesError("the lengths of its elements are not those of their bytes")
    return [block[at:to] for at, to in zip([first, *ends], ends, strict=False)]


def _groups(
    pieces: list[bytes], first: int, sizes: list[int]
) -> Iterator[list[bytes] | GroupToken]:
    for size in sizes:
        if size == _TOKEN:
            yield GroupToken(pieces[first])
            first += 1
        else:
            yield pieces[first : first + size]
            first += size
