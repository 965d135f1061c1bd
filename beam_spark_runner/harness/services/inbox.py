"""What the streams of an SDK harness brought for one bundle, until its thread takes it."""

import os
import tempfile
from collections import deque
from typing import IO

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.harness.protocol import Event, OutputArrived

LIMIT_BYTES = 32 << 20
"""Outputs that wait in memory. Beyond, the stream waits or, if others use it too, a file grows."""


class Inbox:
    """Events of one bundle in the order of their coming.

    Outputs beyond ``LIMIT_BYTES`` wait in a file, if somebody puts them all the same.

    Threads: the caller holds the lock of the connection.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = LIMIT_BYTES if limit_bytes is None else limit_bytes
        self._events: deque[Event | _Spilled] = deque()
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._file_end = 0
        self._spilled = 0

    @property
    def is_full(self) -> bool:
        """Whether what comes next goes to a file."""
        return self._bytes > self._limit_bytes

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Add an event."""
        if isinstance(event, OutputArrived):
            if self.is_full:
                self._events.append(self._spill(event))
                return
            self._bytes += len(event.coded_elements)
        self._events.append(event)

    def take(self) -> Event | None:
        """Remove the oldest event; None if there is none."""
        if not self._events:
            return None
        event = self._events.popleft()
        if isinstance(event, _Spilled):
            return self._read(event)
        if isinstance(event, OutputArrived):
            self._bytes -= len(event.coded_elements)
        return event

    def close(self) -> None:
        """Give memory and disk back."""
        self._events.clear()
        self._bytes = 0
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self, event: OutputArrived) -> "_Spilled":
        if self._file is None:
            # Unlinked at once: nothing is left behind however this process ends.
            self._file = tempfile.TemporaryFile(prefix="beam-output-", buffering=0)  # noqa: SIM115
        start, length = self._file_end, len(event.coded_elements)
        rest = memoryview(event.coded_elements)
        while rest:
            written = os.pwrite(self._file.fileno(), rest, self._file_end)
            self._file_end += written
            rest = rest[written:]
        self._spilled += 1
        return _Spilled(event.transform, start, length)

    def _read(self, spilled: "_Spilled") -> OutputArrived:
        assert self._file is not None
        parts, start, end = [], spilled.start, spilled.start + spilled.length
        while start < end:
            part = os.pread(self._file.fileno(), end - start, start)
            parts.append(part)
            start += len(part)
        self._spilled -= 1
        if not self._spilled:
            self._file.truncate(0)
            self._file_end = 0
        return OutputArrived(spilled.transform, b"".join(parts))


class _Spilled:
    """Where an output lies in the file."""

    __slots__ = ("length", "start", "transform")

    def __init__(self, transform: TransformId, start: int, length: int) -> None:
        self.transform, self.start, self.length = transform, start, length
