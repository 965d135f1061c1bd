"""Values of one large group: streamed on the first pass, replayed on every other."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

from apache_beam.coders.coder_impl import FastPrimitivesCoderImpl

from beam_spark_runner.state.spill import SpillFile

MEMORY_LIMIT_BYTES = 16 << 20
ROW_OVERHEAD_BYTES = 64  # what a bytes object and its slot in a list cost beside the bytes

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 20
_WRITE_BYTES = 1 << 16


class ValueLog:
    """Encoded values in the order of their coming: in memory, beyond a limit in a file.

    Threads: one.
    """

    def __init__(self, limit_bytes: int = MEMORY_LIMIT_BYTES) -> None:
        self._room = limit_bytes
        self._head: list[bytes] = []
        self._file = SpillFile()
        self._unwritten = bytearray()

    def append(self, value: bytes) -> None:
        """Keep one more value."""
        if self._room >= 0:
            self._head.append(value)
            self._room -= len(value) + ROW_OVERHEAD_BYTES
            return
        self._unwritten += _LENGTH.pack(len(value))
        self._unwritten += value
        if len(self._unwritten) > _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._unwritten:
            self._file.append(bytes(self._unwritten))
            self._unwritten.clear()

    def __iter__(self) -> Iterator[bytes]:
        """Yield what is there now and what is appended while the iteration lasts."""
        position = 0
        while position < len(self._head):
            yield self._head[position]
            position += 1
        offset, pending, wanted = 0, b"", _LENGTH.size
        while True:
            self._write()
            size = min(max(_READ_BYTES, wanted - len(pending)), self._file.end - offset)
            if size <= 0:  # closed meanwhile, perhaps
                return
            pending += self._file.read(offset, size)
            offset += size
            start = 0
            while (wanted := _LENGTH.size) <= len(pending) - start:
                (length,) = _LENGTH.unpack_from(pending, start)
                wanted += length
                if wanted > len(pending) - start:
                    break
                yield pending[start + _LENGTH.size : start + wanted]
                start += wanted
            pending = pending[start:]

    def close(self) -> None:
        """Give memory and disk back."""
        self._head = []
        self._unwritten.clear()
        self._file.close()


class StreamedValues:
    """The iterable that a DoFn gets for a group too large for a list.

    It may be iterated again, and several times at once, until the bundle ends.
    """

    def __init__(
        self,
        source: Iterator[bytes],
        decode: Callable[[bytes], Any],
        limit_bytes: int = MEMORY_LIMIT_BYTES,
    ) -> None:
        self._source = source
        self._decode = decode
        self._log = ValueLog(limit_bytes)
        self._logged = 0
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        """Decode what was logged, then what the source still has."""
        decode = self._decode
        seen = 0
        replay = iter(self._log)
        while True:
            while seen < self._logged:
                value = next(replay, None)
                if value is None:  # the log grew behind the reader's back: read on
                    replay = self._skip(seen)
                    continue
                seen += 1
                yield decode(value)
            if self._ended:
                return
            value = next(self._source, None)
            if value is None:
                self._ended = True
                return
            self._log.append(value)
            self._logged += 1
            seen += 1
            replay = _NOTHING
            yield decode(value)

    def _skip(self, count: int) -> Iterator[bytes]:
        replay = iter(self._log)
        for _ in range(count):
            next(replay)
        return replay

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def drain(self, *, keep: bool) -> None:
        """Read the source to its end; ``keep``: somebody may still iterate."""
        if not keep:
            self._ended = True
        for value in self._source:
            if keep:
                self._log.append(value)
                self._logged += 1
        self._ended = True

    def close(self) -> None:
        """End of the bundle: what was kept is gone."""
        self._log.close()
        self._logged = 0
        self._ended = True


_NOTHING: Iterator[bytes] = iter(())

# Lets Beam's default coder encode the iterable as a list where it leaves the stage.
FastPrimitivesCoderImpl.register_iterable_like_type(StreamedValues)
