"""Reads encoded values of untrusted peers, in Beam's encodings, within the bytes that are there.

The compiled streams of Beam's coders do not check where their buffer ends: a length that is
larger than the rest of the buffer crashes the process, or returns the process's own memory as
data. So bytes that an SDK, a client, a file or a peer supplies are read here first: each length,
count and nesting is compared with what is left before anything is allocated or decoded.

Two forms of the same rules: ``BoundedReader`` for single values, and functions that take and
return positions for blocks of many elements. These functions may return a position after the end
of the block, but read nothing there: their callers compare it with the end once per element.

Source: Beam coders ``windowed_value``, ``kv``, ``iterable``, ``length_prefix``, ``double``.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from apache_beam.coders import BytesCoder, Coder, FloatCoder, TupleCoder
from apache_beam.coders.coder_impl import create_InputStream
from apache_beam.coders.coders import (
    GlobalWindowCoder,
    IntervalWindowCoder,
    TimestampPrefixingOpaqueWindowCoder,
)
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.rendering import text_of
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.core.varint import read_varint

ReadAt: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Takes a block and a position. Returns the value there, and the position after it."""
EndAt: TypeAlias = Callable[[bytes, int], int]
"""Takes a block and a position. Returns the position after the value there."""
Skip: TypeAlias = Callable[["BoundedReader"], object]
"""Reads past one value, in its nested encoding."""
_Item = TypeVar("_Item")

_COUNT = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")
_TIMESTAMP_BYTES = 8
# Encoded timestamps are milliseconds with the sign bit inverted, so that they sort as bytes.
EARLIEST, LATEST = ((us // 1000 + (1 << 63)).to_bytes(8, "big") for us in (MIN_US, MAX_US))
"""The first and the last timestamp of Beam, encoded."""
_MAX_WINDOWS = 1 << 20
_MAX_PANES = (1 << 31) - 1
_DEEPEST = 64
"""The deepest nesting of coders that ``skipper`` follows."""


class MalformedBytesError(ValueError):
    """Bytes that another process or a file supplied are not what they should be."""


class BoundedReader:
    """Reads a byte string from its beginning to its end. Every method may raise.

    Raises:
        MalformedBytesError: The bytes end within a value, or are none of the asked kind.
    """

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def bytes_left(self) -> int:
        """The number of bytes that have not been read."""
        return len(self._data) - self._position

    def read(self, count: int) -> bytes:
        """Read a number of bytes."""
        if not 0 <= count <= self.bytes_left:
            raise MalformedBytesError(
                f"it is cut off: {count} more bytes are announced, {self.bytes_left} are left"
            )
        start = self._position
        self._position += count
        return self._data[start : self._position]

    def unsigned(self) -> int:
        """Read a varint as a number that is not negative."""
        try:
            number, self._position = read_varint(self._data, self._position)
        except ValueError as error:
            raise MalformedBytesError(str(error)) from error
        return number

    def signed(self) -> int:
        """Read a varint of 64 bits as a signed number."""
        number = self.unsigned()
        return number - (1 << 64) if number >= 1 << 63 else number

    def count(self) -> int:
        """Read a count of four bytes; -1 stands for an unknown one."""
        (count,) = _COUNT.unpack(self.read(_COUNT.size))
        return int(count)

    def prefixed(self) -> bytes:
        """Read bytes after their length."""
        return self.read(self.unsigned())

    def text(self) -> str:
        """Read UTF-8 after its length."""
        try:
            return self.prefixed().decode()
        except UnicodeDecodeError as error:
            raise MalformedBytesError(f"a text is not UTF-8: {error}") from error

    def items(self, read: Callable[["BoundedReader"], _Item]) -> list[_Item]:
        """Read an iterable, of a known or an unknown number of items."""
        count = self.count()
        result: list[_Item] = []
        if count >= 0:
            self._read_into(result, count, read)
            return result
        if count != -1:
            raise MalformedBytesError(f"an iterable has {count} items")
        while count := self.unsigned():
            self._read_into(result, count, read)
        return result

    def _read_into(
        self, target: list[_Item], count: int, read: Callable[["BoundedReader"], _Item]
    ) -> None:
        if count > self.bytes_left:  # no item is encoded as nothing
            raise MalformedBytesError(
                f"it is cut off: {count} items are announced, {self.bytes_left} bytes left"
            )
        target.extend(read(self) for _ in range(count))

    def end(self) -> None:
        """Check that nothing is left."""
        if self.bytes_left:
            raise MalformedBytesError(f"{self.bytes_left} more bytes than expected")


def skipper(coders: Mapping[str, beam_runner_api_pb2.Coder], id_: str) -> Skip | None:
    """Return a function that reads past values of a coder of Beam's model.

    Args:
        coders: The coders of a descriptor, or of a pipeline.
        id_: The id of the values' coder.

    Returns:
        None: the coder, or one of its components, is not one whose encoding is known here, or a
        value may be encoded as nothing.
    """
    return _skipper(coders, id_, 0)


def _skipper(coders: Mapping[str, beam_runner_api_pb2.Coder], id_: str, depth: int) -> Skip | None:
    if id_ not in coders or depth > _DEEPEST:
        return None
    coder = coders[id_]
    simple = _SKIPPERS.get(coder.spec.urn)
    if simple is not None:
        return simple
    parts = [_skipper(coders, part, depth + 1) for part in coder.component_coder_ids]
    match coder.spec.urn, parts:
        case urns.CODER_KV, [first, second] if first is not None and second is not None:
            return lambda reader: (first(reader), second(reader))
        case urns.CODER_ITERABLE, [item] if item is not None:
            return lambda reader: reader.items(item)
        case urns.CODER_NULLABLE, [value] if value is not None:
            return lambda reader: value(reader) if _flag(reader) else None
    return None


def _flag(reader: BoundedReader) -> bool:
    coded = reader.read(1)
    if coded not in (b"\0", b"\1"):
        raise MalformedBytesError(f"a flag is {coded.hex()}, which is neither 0 nor 1")
    return coded == b"\1"


_SKIPPERS: Mapping[str, Skip] = {
    urns.CODER_BYTES: BoundedReader.prefixed,
    urns.CODER_STRING: BoundedReader.prefixed,
    urns.CODER_LENGTH_PREFIX: BoundedReader.prefixed,
    urns.CODER_VARINT: BoundedReader.unsigned,
    urns.CODER_BOOL: _flag,
    urns.CODER_DOUBLE: lambda reader: reader.read(_DOUBLE.size),
    urns.CODER_INTERVAL_WINDOW: lambda reader: (reader.read(_TIMESTAMP_BYTES), reader.unsigned()),
}


def decode_window(coder: Coder, coded: bytes) -> Any:
    """Decode a window that an SDK has encoded.

    Args:
        coder: The runner's coder for windows, see ``portable.wire``.
        coded: The encoded window.

    Raises:
        MalformedBytesError: The bytes are no window of this coder.
    """
    try:
        end = window_end_at(coder)(coded, 0)
    except (IndexError, struct.error) as error:
        raise MalformedBytesError("they end within a window") from error
    if end != len(coded):
        raise MalformedBytesError(f"a window has {end} bytes, not {len(coded)}")
    return coder.decode(coded)


def windows_end_at(coder: Coder) -> EndAt:
    """Return a function that reads past the windows of an element or a timer.

    It takes a block and a position, and returns the position after the windows. It raises
    IndexError or struct.error if the block ends before, and MalformedBytesError if there cannot
    be as many windows, or one of them is none.
    """
    if isinstance(coder, GlobalWindowCoder):
        return _end_of_global_windows
    end_of_window = window_end_at(coder)

    def end_of_windows(block: bytes, position: int) -> int:
        (count,) = _COUNT.unpack_from(block, position)
        position += _COUNT.size
        # Sliding windows may have gaps between them, whose elements are in no window.
        if not 0 <= count <= _MAX_WINDOWS:
            raise MalformedBytesError(f"an element or a timer is in {count} windows")
        for _ in range(count):
            position = end_of_window(block, position)
        return position

    return end_of_windows


def _end_of_global_windows(block: bytes, position: int) -> int:
    (count,) = _COUNT.unpack_from(block, position)
    # There is only one: more of them would take memory, but no bytes of the block.
    if not 0 <= count <= 1:
        raise MalformedBytesError(f"an element or a timer is in {count} windows")
    return position + _COUNT.size


def window_end_at(coder: Coder) -> EndAt:
    """Return a function that reads past one window; it raises as ``windows_end_at`` says."""
    if isinstance(coder, GlobalWindowCoder):
        return lambda _, position: position
    if isinstance(coder, IntervalWindowCoder):
        return _end_of_interval
    if isinstance(coder, TimestampPrefixingOpaqueWindowCoder):
        return _end_of_opaque_window
    decode = coder.get_impl().decode_from_stream

    def end_of_decoded(block: bytes, position: int) -> int:
        # A coder of this Python, which encodes and decodes in the same process.
        stream = create_InputStream(block[position:])
        try:
            decode(stream, True)
        except Exception as error:
            raise MalformedBytesError(f"a window cannot be decoded: {text_of(error)}") from error
        return len(block) - int(stream.size())

    return end_of_decoded


def _end_of_interval(block: bytes, position: int) -> int:
    end = position + _TIMESTAMP_BYTES
    if not EARLIEST <= block[position:end] <= LATEST:
        raise no_timestamp(block[position:end])
    return end + 1 if block[end] < 0x80 else read_varint_at(block, end)[1]


def _end_of_opaque_window(block: bytes, position: int) -> int:
    end = position + _TIMESTAMP_BYTES
    if not EARLIEST <= block[position:end] <= LATEST:
        raise no_timestamp(block[position:end])
    length, position = read_length_at(block, end)
    return position + length


def no_timestamp(data: bytes) -> Exception:
    """Return the error for bytes that are no timestamp, or only the first bytes of one.

    Timestamps that Beam does not have become other ones when they are converted to microseconds.
    User code can be their cause: Java's SDK does not check the timestamps of outputs.
    """
    if len(data) < _TIMESTAMP_BYTES:
        return IndexError()
    milliseconds = int.from_bytes(data, "big") - (1 << 63)
    return MalformedBytesError(
        f"{milliseconds} ms is no timestamp of Beam, whose timestamps are between "
        f"{MIN_US // 1000} ms and {MAX_US // 1000} ms"
    )


def end_of_pane(block: bytes, position: int) -> int:
    """Return the position after a pane; raises as ``windows_end_at`` says."""
    kind = block[position] >> 4
    position += 1
    if kind > 2:
        raise MalformedBytesError(f"a pane is of kind {kind}")
    for _ in range(kind):
        index, position = read_varint_at(block, position)
        if _MAX_PANES < index < (1 << 64) - 1:  # -1 stands for none
            raise MalformedBytesError(f"a pane has the index {index}")
    return position


def read_varint_at(block: bytes, position: int) -> tuple[int, int]:
    """Return a number that is not negative; raises as ``windows_end_at`` says."""
    first = block[position]
    if first < 0x80:
        return first, position + 1
    second = block[position + 1]
    if second < 0x80:  # most numbers are small
        return (second << 7) + first - 0x80, position + 2
    try:
        return read_varint(block, position)
    except ValueError as error:
        raise MalformedBytesError(f"a number is wrong: {error}") from error


def read_length_at(block: bytes, position: int) -> tuple[int, int]:
    """Return a length, which is at most that of the block; raises as ``windows_end_at`` says."""
    length, position = read_varint_at(block, position)
    if length > len(block):  # positions beyond 63 bits raise other errors
        raise MalformedBytesError(
            f"it ends within an element: {length} bytes are announced in a block of {len(block)}"
        )
    return length, position


def read_bytes_at(block: bytes, position: int) -> tuple[bytes, int]:
    """Return bytes after their length; raises as ``windows_end_at`` says."""
    length = block[position]
    position += 1
    if length > 0x7F:
        length, position = read_length_at(block, position - 1)
    end = position + length
    return block[position:end], end


def reader_at(coder: Coder) -> ReadAt:
    """Return a function that reads values of a coder of ``portable.wire``."""
    if isinstance(coder, TupleCoder):
        first, second = map(reader_at, coder.coders())

        def read_pair(block: bytes, position: int) -> tuple[Any, int]:
            key, position = first(block, position)
            value, position = second(block, position)
            return (key, value), position

        return _read_pair_of_bytes if first is second is read_bytes_at else read_pair
    if isinstance(coder, FloatCoder):
        return lambda block, position: (_DOUBLE.unpack_from(block, position)[0], position + 8)
    if isinstance(coder, BytesCoder):
        return read_bytes_at
    raise InvariantError(f"nothing of the coder {coder} is read in blocks")


def _read_pair_of_bytes(block: bytes, position: int) -> tuple[tuple[bytes, bytes], int]:
    """Read two byte strings; ``read_bytes_at`` is written out: most edges have such pairs."""
    length = block[position]
    position += 1
    if length > 0x7F:
        length, position = read_length_at(block, position - 1)
    end = position + length
    length = block[end]
    start = end + 1
    if length > 0x7F:
        length, start = read_length_at(block, end)
    last = start + length
    return (block[position:end], block[start:last]), last
