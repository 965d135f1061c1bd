"""Residuals of splittable DoFns in memory, for one task of a batch pipeline.

A residual is one timer and one value, both with the same id in the namespace of its window.
The current key is set before each call, as in a backend that partitions its state by key.
"""

import heapq
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MAX_US


class ResidualTimer(NamedTuple):
    """The timer of a residual: its due time and its watermark hold."""

    fire_at_us: int  # processing time
    key: bytes
    window: bytes  # encoded: the namespace
    id: str
    hold_us: int  # event time: the output timestamp
    was_truncated: bool = False  # the restriction was truncated by a drain
    slice_us: int = 0  # the least time to process it for: with less, nothing was claimed


class Keyed(Protocol):
    """A backend whose calls apply to its current key.

    Callers hold ``lock`` from setting the key to the end of the call.
    """

    @property
    def lock(self) -> threading.Lock: ...

    def set_current_key(self, key: bytes) -> None: ...


class KeyedTimers(Keyed, Protocol):
    """A backend's processing-time timers."""

    def processing_time_us(self) -> int: ...

    def set_timer(self, window: bytes, id_: str, fire_at_us: int, hold_us: int) -> None: ...


class KeyedValues(Keyed, Protocol):
    """A backend's value states, addressed by window and id."""

    def write(self, window: bytes, id_: str, value: WindowedValue) -> None: ...

    def read(self, window: bytes, id_: str) -> WindowedValue: ...

    def clear(self, window: bytes, id_: str) -> None: ...


class InMemoryTimers:
    """See ``KeyedTimers``.

    Args:
        now_us: Returns the processing time, microseconds since the Unix epoch.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.lock = threading.Lock()
        self._now_us = now_us
        self._key = b""
        self._by_time: list[ResidualTimer] = []
        self._by_hold: list[tuple[int, str, bytes]] = []
        self._pending: set[tuple[str, bytes]] = set()

    def processing_time_us(self) -> int:
        return self._now_us()

    def set_current_key(self, key: bytes) -> None:
        self._key = key

    def set_timer(self, window: bytes, id_: str, fire_at_us: int, hold_us: int) -> None:
        timer = ResidualTimer(fire_at_us, self._key, window, id_, hold_us)
        heapq.heappush(self._by_time, timer)
        heapq.heappush(self._by_hold, (hold_us, id_, window))
        self._pending.add((id_, window))

    def pop_due(self) -> list[ResidualTimer]:
        """Remove and return the timers that are due, the earliest first; their holds end."""
        return self._pop_until(self._now_us())

    def pop_all(self) -> list[ResidualTimer]:
        """Remove and return all timers, due or not, the earliest first."""
        return self._pop_until(None)

    def _pop_until(self, limit_us: int | None) -> list[ResidualTimer]:
        popped = []
        while self._by_time and (limit_us is None or self._by_time[0].fire_at_us <= limit_us):
            timer = heapq.heappop(self._by_time)
            self._pending.remove((timer.id, timer.window))
            popped.append(timer)
        return popped

    def next_due_us(self) -> int | None:
        """Return the processing time of the earliest timer; None: there is no timer."""
        return self._by_time[0].fire_at_us if self._by_time else None

    def watermark_hold_us(self) -> int:
        """Return the least hold of the pending timers; the end of time if there are none."""
        while self._by_hold and self._by_hold[0][1:] not in self._pending:
            heapq.heappop(self._by_hold)
        return self._by_hold[0][0] if self._by_hold else MAX_US

    def __len__(self) -> int:
        return len(self._pending)


class InMemoryValues:
    """See ``KeyedValues``. Values are stored as objects, not encoded."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._key = b""
        self._values: dict[tuple[bytes, bytes, str], WindowedValue] = {}

    def set_current_key(self, key: bytes) -> None:
        self._key = key

    def write(self, window: bytes, id_: str, value: WindowedValue) -> None:
        self._values[self._key, window, id_] = value

    def read(self, window: bytes, id_: str) -> WindowedValue:
        return self._values[self._key, window, id_]

    def clear(self, window: bytes, id_: str) -> None:
        del self._values[self._key, window, id_]

    def __len__(self) -> int:
        return len(self._values)
