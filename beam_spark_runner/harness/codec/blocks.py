"""Blocks of elements on the data stream, whose keys and values are bytes to the runner.

Beam's coders are written out (for reading, in ``portable.bounded``), because its compiled streams
do not check where a block of another process ends; and because most elements of a block have the
same timestamp, windows and pane, so that decoding only their values takes a quarter of the time.

Source: Beam coders ``windowed_value``, ``kv``, ``iterable``, ``length_prefix``, ``double``.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from apache_beam.coders import (
    BytesCoder,
    Coder,
    FloatCoder,
    IterableCoder,
    TupleCoder,
    WindowedValueCoder,
)
from apache_beam.transforms.userstate import Timer
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.varint import coded_varint
from beam_spark_runner.portable.bounded import (
    EARLIEST,
    LATEST,
    MalformedBytesError,
    end_of_pane,
    no_timestamp,
    read_bytes_at,
    reader_at,
    windows_end_at,
)

Origins: TypeAlias = list[WindowedValue]
_Writer: TypeAlias = Callable[[Any, list[bytes]], None]

_AT_ONCE = 1024
_COUNT = struct.Struct(">i")
_DOUBLE = struct.Struct(">d")
_TIMESTAMP_BYTES = 8
_SMALL = 1 << 14
_MAX_HEADERS = 1 << 10
_LONGEST_KNOWN = 1 << 12
"""Longer headers, in bytes, are of very many windows, and are decoded each time."""


_REST_IS_IN_THE_STATE = struct.pack(">i", -1) + b"\xff" * 9 + b"\x01"
"""The begin of an iterable that is only in the state: unknown length, then -1 as a varint."""


class GroupToken(bytes):
    """Replaces the values of a group: the key with which the SDK reads them from the state."""


class HeaderWriter:
    """Encodes the header of a value: its timestamp, windows and pane.

    Args:
        coder: A coder of windowed values.
    """

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._encode = WindowedValueCoder(BytesCoder(), coder.window_coder).get_impl().encode_nested
        self._origin: WindowedValue | None = None
        self._header = b""

    def encode(self, origin: WindowedValue) -> bytes:
        """Encode the header of an element."""
        last = self._origin
        if (
            last is None
            or origin.timestamp_micros != last.timestamp_micros
            or (origin.windows is not last.windows and origin.windows != last.windows)
            or (origin.pane_info is not last.pane_info and origin.pane_info != last.pane_info)
        ):
            self._header = self._encode(origin.with_value(b""))[:-1]
        self._origin = origin
        return self._header


class BlockWriter:
    """Encodes elements one after the other.

    Args:
        coder: A coder of windowed values, made by ``portable.wire``.
    """

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._header = HeaderWriter(coder)
        self._write = _writer(coder.wrapped_value_coder)

    def write(self, values: list[Any], origins: Origins, out: list[bytes]) -> None:
        """Append the pieces of elements to ``out``."""
        write, append = self._write, out.append
        last, header = None, b""
        for value, origin in zip(values, origins, strict=True):
            if origin is not last:
                last, header = origin, self._header.encode(origin)
            append(header)
            write(value, out)


def length_prefix(length: int) -> bytes:
    """Encode a length."""
    return _PREFIXES[length] if length < _SMALL else coded_varint(length)


_PREFIXES = [coded_varint(length) for length in range(_SMALL)]


def _writer(coder: Coder) -> _Writer:
    if isinstance(coder, TupleCoder):
        first, second = map(_writer, coder.coders())

        def write_pair(value: Any, out: list[bytes]) -> None:
            first(value[0], out)
            second(value[1], out)

        return write_pair
    if isinstance(coder, IterableCoder):
        write_one = _writer(coder.value_coder())

        def write_all(values: Any, out: list[bytes]) -> None:
            if type(values) is GroupToken:
                out += (_REST_IS_IN_THE_STATE, length_prefix(len(values)), values)
                return
            if type(values) is not list:
                values = list(values)  # panes of Beam's triggers have no length
            out.append(_COUNT.pack(len(values)))
            for value in values:
                write_one(value, out)

        return write_all
    if isinstance(coder, FloatCoder):
        return lambda value, out: out.append(_DOUBLE.pack(value))
    if isinstance(coder, BytesCoder):
        return _write_bytes
    raise InvariantError(f"nothing of the coder {coder} is written in blocks")


def _write_bytes(value: bytes, out: list[bytes]) -> None:
    length = len(value)
    out.append(_PREFIXES[length] if length < _SMALL else coded_varint(length))
    out.append(value)


class HeaderReader:
    """Decodes headers of values; equal headers become one object.

    Args:
        coder: See ``HeaderWriter``.
    """

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._coder = WindowedValueCoder(BytesCoder(), coder.window_coder).get_impl()
        self._end_of_windows = windows_end_at(coder.window_coder)
        self._origins: dict[bytes, WindowedValue] = {}

    def read(self, block: bytes, start: int) -> tuple[bytes, WindowedValue, int]:
        """Return a header, its origin, and the position of its end.

        Raises:
            IndexError, struct.error: The header does not end within the block.
            MalformedBytesError: The bytes are no header.
        """
        position = self._end_of_windows(block, start + _TIMESTAMP_BYTES)
        position = end_of_pane(block, position)
        header = block[start:position]
        origin = self._origins.get(header)
        if origin is None:
            if position > len(block):
                raise MalformedBytesError("it ends within an element")
            if not EARLIEST <= header[:_TIMESTAMP_BYTES] <= LATEST:
                raise no_timestamp(header[:_TIMESTAMP_BYTES])
            if len(self._origins) >= _MAX_HEADERS:
                self._origins.clear()
            origin = self._coder.decode(header + b"\0")
            if len(header) <= _LONGEST_KNOWN:
                self._origins[header] = origin
        return header, origin, position

    def decode(self, header: bytes) -> WindowedValue:
        """Return the origin that a header encodes.

        Raises:
            MalformedBytesError: The bytes are no header.
        """
        origin = self._origins.get(header)
        if origin is not None:
            return origin
        try:
            _, origin, end = self.read(header, 0)
        except (IndexError, struct.error) as error:
            raise MalformedBytesError("it ends within a header") from error
        if end != len(header):
            raise MalformedBytesError("a header is longer than what it says")
        return origin


class BlockReader:
    """Decodes elements that an SDK harness has sent.

    Args:
        coder: See ``BlockWriter``.
    """

    def __init__(self, coder: WindowedValueCoder) -> None:
        self._headers = HeaderReader(coder)
        self._read_value = reader_at(coder.wrapped_value_coder)
        self._header = b""  # of the previous element; empty: there was none
        self._origin: WindowedValue | None = None

    def read(self, block: bytes) -> Iterator[tuple[list[Any], Origins]]:
        """Yield the elements of a block, some at a time.

        Raises:
            MalformedBytesError: The block ends within an element, or has other bytes.
        """
        position, end = 0, len(block)
        read_value, begins_with = self._read_value, block.startswith
        header, origin = self._header, self._origin
        while position < end:
            values: list[Any] = []
            origins: Origins = []
            try:
                while position < end and len(values) < _AT_ONCE:
                    if header and begins_with(header, position):
                        position += len(header)
                    else:
                        header, origin, position = self._headers.read(block, position)
                    value, position = read_value(block, position)
                    values.append(value)
                    origins.append(origin)
            except (IndexError, struct.error) as error:
                raise MalformedBytesError("it ends within an element") from error
            if position > end:
                raise MalformedBytesError("it ends within an element")
            yield values, origins
        self._header, self._origin = header, origin


class TimerCodec:
    """Decodes timers that an SDK harness has set or cleared, and encodes those that fire.

    Args:
        key_coder: The coder of keys, made by ``portable.wire``.
        window_coder: The window coder of the step's input.
        timer_coder: The coder of timers with these keys and windows.
    """

    def __init__(self, key_coder: Coder, window_coder: Coder, timer_coder: Coder) -> None:
        self._end_of_windows = windows_end_at(window_coder)
        self._read_key = reader_at(key_coder)
        coder = timer_coder.get_impl()
        self._decode, self._encode = coder.decode, coder.encode_nested

    def write(self, timer: Timer) -> bytes:
        """Encode a timer."""
        coded: bytes = self._encode(timer)
        return coded

    def read(self, block: bytes) -> Iterator[Timer]:
        """Yield the timers of a block.

        Raises:
            MalformedBytesError: The block ends within a timer, or has other bytes.
        """
        start = 0
        while start < len(block):
            try:
                end = self._end(block, start)
                if end > len(block):
                    raise IndexError
                timer: Timer = self._decode(block[start:end])
            except (IndexError, struct.error) as error:
                raise MalformedBytesError("it ends within a timer") from error
            except UnicodeDecodeError as error:
                raise MalformedBytesError(f"the tag of a timer is no text: {error}") from error
            if not timer.windows:
                raise MalformedBytesError("a timer is in no window")
            yield timer
            start = end

    def _end(self, block: bytes, start: int) -> int:
        _, position = self._read_key(block, start)
        _, position = read_bytes_at(block, position)  # the tag
        position = self._end_of_windows(block, position)
        is_cleared = block[position]
        position += 1
        if is_cleared > 1:
            raise MalformedBytesError(f"a timer is cleared or set, and not {is_cleared}")
        return position if is_cleared else end_of_pane(block, position + 2 * _TIMESTAMP_BYTES)
