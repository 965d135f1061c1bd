"""Values of one large group: streamed on the first pass, replayed on every other."""

import struct
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from apache_beam.coders.coder_impl import FastPrimitivesCoderImpl
from typing_extensions import override

from beam_spark_runner.state.spill import SpillFile

MEMORY_LIMIT_BYTES = 16 << 20
ROW_OVERHEAD_BYTES = 64  # overhead of a bytes object and its slot in a list

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 20
_READ_VALUES = 1 << 10
_WRITE_BYTES = 1 << 16


class GroupClosedError(Exception):
    """User code has iterated over the values of a large group whose bundle has ended."""

    def __init__(
        self,
        message: str = (
            "the values of a group can be read only until their bundle ends, and this one has "
            "ended: copy those that are needed longer, for example with list(values)"
        ),
    ) -> None:
        super().__init__(message)


class ValueLogs:
    """Makes the logs of one task. They share a limit on memory, and are closed together.

    Args:
        group_memory_bytes: The size of the values of all logs in memory; the rest is on disk.

    Threads: one at a time.

    Attributes:
        error: The last error of the disk. The task must fail even if user code has caught it,
            since a group may have been processed in part.
    """

    def __init__(self, group_memory_bytes: int = MEMORY_LIMIT_BYTES) -> None:
        self.error: OSError | None = None
        self.group_memory_bytes = group_memory_bytes
        self.room_bytes = group_memory_bytes  # the part of the limit that no log uses
        self._open: weakref.WeakSet[ValueLog] = weakref.WeakSet()

    def new(self, *, in_memory: bool = True) -> "ValueLog":
        """Return an empty log. ``in_memory``: whether it may use memory, not only the disk."""
        log = ValueLog(self, in_memory=in_memory)
        self._open.add(log)
        return log

    def check(self) -> None:
        """Raise the error of the disk, if there is one."""
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """Close all logs that still exist, at the end of the task."""
        for log in list(self._open):
            log.close()


class ValueLog:
    """Encoded values in the order of their arrival: in memory, and beyond a limit in a file.

    Memory and disk are freed when the log is closed or garbage-collected.
    """

    def __init__(self, logs: ValueLogs, *, in_memory: bool) -> None:
        self.count = 0
        self.is_closed = False
        self._logs = logs
        self._grows_in_memory = in_memory
        self._in_memory_bytes = 0
        self._head: list[bytes] = []
        self._file = SpillFile()
        self._unwritten = bytearray()

    def append(self, value: bytes) -> None:
        """Append one value.

        Raises:
            GroupClosedError: The log is closed.
            OSError: The disk failed; see ``ValueLogs.error``.
        """
        if self.is_closed:
            raise GroupClosedError
        self.count += 1
        if self._grows_in_memory:
            size = len(value) + ROW_OVERHEAD_BYTES
            self._head.append(value)
            self._in_memory_bytes += size
            self._logs.room_bytes -= size
            self._grows_in_memory = self._logs.room_bytes >= 0
            return
        self._unwritten += _LENGTH.pack(len(value))
        self._unwritten += value
        if len(self._unwritten) > _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._unwritten:
            try:
                self._file.append(bytes(self._unwritten))
            except OSError as error:
                self._logs.error = error
                raise
            self._unwritten.clear()

    def __iter__(self) -> Iterator[bytes]:
        """Yield all values, with those that are appended during the iteration.

        Raises:
            GroupClosedError: The log is closed, or was closed during the iteration.
        """
        reader = LogReader(self)
        while some := reader.next_values():
            for value in some:
                yield value
                if self.is_closed:
                    raise GroupClosedError

    def from_memory(self, position: int) -> list[bytes]:
        """Return some values that are in memory, from the one at ``position`` on."""
        return self._head[position : position + _READ_VALUES]

    def from_file(self, offset: int, least: int) -> bytes:
        """Return content of the file from ``offset``: at least ``least`` bytes, if it has them."""
        self._write()
        try:
            return self._file.read(offset, min(max(_READ_BYTES, least), self._file.end - offset))
        except (OSError, EOFError) as error:
            self._logs.error = error if isinstance(error, OSError) else OSError(str(error))
            raise

    def close(self) -> None:
        """Free memory and disk. Further reads raise a GroupClosedError."""
        self.is_closed = True
        self._logs.room_bytes += self._in_memory_bytes
        self._in_memory_bytes = 0
        self._head = []
        self._unwritten.clear()
        self._file.close()

    def __del__(self) -> None:
        self.close()


class LogReader:
    """A cursor in a log, which reads several values at a time."""

    def __init__(self, log: ValueLog) -> None:
        self._log = log
        self._count = 0
        self._spare: list[bytes] = []  # values that were read but not taken
        self._count_in_memory = 0
        self._offset = 0  # in the file, up to which it was read
        self._content = b""  # content of the file, not parsed yet from ``_start`` on
        self._start = 0

    def next_values(self) -> list[bytes]:
        """Return some next values; none at the end of the log, which may still grow.

        Raises:
            GroupClosedError: The log is closed.
        """
        if self._log.is_closed:
            raise GroupClosedError
        if self._spare:
            some, self._spare = self._spare, []
            return some
        if self._count == self._log.count:
            return []
        some = self._log.from_memory(self._count_in_memory)
        self._count_in_memory += len(some)
        if not some:
            some = self._from_file()
        self._count += len(some)
        return some

    def _from_file(self) -> list[bytes]:
        some: list[bytes] = []
        while not some:
            content, start = self._content, self._start
            size = _LENGTH.size
            while size <= len(content) - start and len(some) < _READ_VALUES:
                (length,) = _LENGTH.unpack_from(content, start)
                size += length
                if size > len(content) - start:
                    break
                some.append(content[start + _LENGTH.size : start + size])
                start += size
                size = _LENGTH.size
            self._start = start
            if not some:
                rest = len(content) - start
                more = self._log.from_file(self._offset, size - rest)
                self._content, self._start = content[start:] + more, 0
                self._offset += len(more)
        return some

    def skip(self, count: int) -> None:
        """Skip ``count`` values; the log must have as many."""
        while count:
            some = self.next_values()
            self._spare = some[count:]
            count -= len(some) - len(self._spare)


class StreamedValues:
    """The iterable that a DoFn gets for a group too large for a list.

    It may be iterated repeatedly, and by several iterators at once, until the log is closed; then
    iterating raises a GroupClosedError. Each iteration decodes the values again.

    Args:
        log: The log with the first values, to which those of ``source`` are appended as read.
        decode: Decodes one value.
        source: The values of the group that are not in ``log``, encoded.
    """

    def __init__(
        self, log: ValueLog, decode: Callable[[bytes], Any], source: Iterable[bytes] = ()
    ) -> None:
        self._log = log
        self._decode = decode
        self._source = iter(source)

    def __iter__(self) -> Iterator[Any]:
        """Decode the logged values, then those that the source still has."""
        decode, log = self._decode, self._log
        reader = LogReader(log)
        while True:
            while some := reader.next_values():
                for coded in some:
                    yield decode(coded)
                    if log.is_closed:
                        raise GroupClosedError
            end = log.count
            for ours, coded in enumerate(self._source, 1):
                log.append(coded)
                yield decode(coded)
                if log.is_closed:
                    raise GroupClosedError
                if log.count > end + ours:  # another iteration is ahead: follow it
                    reader.skip(ours)
                    break
            else:
                return

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)

    def drain(self) -> None:
        """Log the rest of the source, for later iterations."""
        for coded in self._source:
            self._log.append(coded)


# Has Beam's default coder encode the iterable as a list when it leaves the stage.
FastPrimitivesCoderImpl.register_iterable_like_type(StreamedValues)
