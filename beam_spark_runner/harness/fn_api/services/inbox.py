"""The queue of the messages that an SDK harness has sent for one bundle."""

from collections import deque
from dataclasses import dataclass

from beam_spark_runner.core.ids import TimerFamilyId, TransformId
from beam_spark_runner.harness.fn_api.protocol import Event, OutputArrived, TimersArrived
from beam_spark_runner.state.spill import SpillFile

LIMIT_BYTES = 32 << 20
"""The limit on outputs and timers in memory. Beyond it, the stream is not read or, if other bundles
use it, too, a file grows."""


class Inbox:
    """Events of one bundle in the order of their arrival, until the bundle's thread takes them.

    Outputs and timers that are put beyond ``LIMIT_BYTES`` are written to a file.

    Threads: the caller holds the data stream's lock, ``changed``.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit_bytes = LIMIT_BYTES if limit_bytes is None else limit_bytes
        self._events: deque[Event | _Spilled] = deque()
        self._bytes = 0
        self._file = SpillFile()
        self._spilled = 0

    @property
    def is_full(self) -> bool:
        """Whether outputs and timers that are put next are written to a file."""
        return self._bytes > self._limit_bytes

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Add an event.

        Raises:
            OSError: The disk is full, or failed.
        """
        coded = _bytes_of(event)
        if coded and self.is_full:
            self._events.append(self._spill(event, coded))
            return
        self._bytes += len(coded)
        self._events.append(event)

    def next_event(self) -> Event | None:
        """Remove the oldest event; None if there is none."""
        if not self._events:
            return None
        event = self._events.popleft()
        if isinstance(event, _Spilled):
            return self._read(event)
        self._bytes -= len(_bytes_of(event))
        return event

    def close(self) -> None:
        """Free memory and disk."""
        self._events.clear()
        self._bytes = 0
        self._file.close()

    def _spill(self, event: Event, coded: bytes) -> "_Spilled":
        start = self._file.append(coded)
        self._spilled += 1
        if isinstance(event, TimersArrived):
            return _Spilled(event.family, start, len(coded))
        assert isinstance(event, OutputArrived)
        return _Spilled(event.transform, start, len(coded))

    def _read(self, spilled: "_Spilled") -> Event:
        coded = self._file.read(spilled.start, spilled.length)
        self._spilled -= 1
        if not self._spilled:
            self._file.close()
        if isinstance(spilled.whose, TimerFamilyId):
            return TimersArrived(spilled.whose, coded)
        return OutputArrived(spilled.whose, coded)


@dataclass(frozen=True, slots=True)
class _Spilled:
    """The place in the file of outputs of a transform, or of timers of a family."""

    whose: TransformId | TimerFamilyId
    start: int
    length: int


def _bytes_of(event: Event) -> bytes:
    match event:
        case OutputArrived(_, coded) | TimersArrived(_, coded):
            return coded
    return b""
