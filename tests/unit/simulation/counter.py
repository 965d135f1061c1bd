"""A step with state and timers of both kinds, by hand: what becomes of one key."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from apache_beam.transforms.window import FixedWindows
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import (
    NEVER_US,
    Domain,
    Instant,
    Timer,
    TimerId,
    TimerQueue,
    expiration_timer,
    expiry_us,
)
from tests.unit.simulation.elements import COUNTED, SECOND_US, Row, TaskOutput, windowed

WINDOWS = FixedWindows(20)
WINDOW_CODER = WINDOWS.get_window_coder()
_LATENESS_US = 4 * SECOND_US
_DUE, _IDLE, _END = "due", "idle", "end"


class CountedKey(ABC):
    """Collects the values of each window.

    A timer of event time says what there is three seconds after each element, and sets itself
    again while there is something; one of processing time forgets it all; the end of the window
    says it once more.
    """

    def __init__(self, key: str, output: TaskOutput) -> None:
        self.key, self._output = key, output
        self.timers = TimerQueue()

    @abstractmethod
    def bag(self, window: Any) -> list[int]:
        """Return what was collected."""

    @abstractmethod
    def add(self, window: Any, value: int) -> None:
        """Collect a value."""

    @abstractmethod
    def clear(self, window: Any) -> None:
        """Forget what was collected."""

    @abstractmethod
    def drop(self, window: Any) -> None:
        """The window is over."""

    def set(self, timer: Timer) -> None:
        """Set a timer."""
        self.timers.set(timer, expires_us=_expiry_us(timer.id.window))

    def take(self, rows: Sequence[Row], before: Instant) -> None:
        """Take elements; those whose window is over are dropped."""
        for row in rows:
            for window in windowed(row, WINDOWS).windows:
                if _expiry_us(window) <= before.watermark_us:
                    continue
                self.add(window, row.value % 256)
                tag = str(row.value % 2)
                due_us = row.time_us + 3 * SECOND_US
                self.set(Timer(TimerId(_DUE, tag, window), Domain.EVENT_TIME, due_us, due_us))
                idle_us = before.clock_us + 7 * SECOND_US
                idle = TimerId(_IDLE, "", window)
                self.set(Timer(idle, Domain.PROCESSING_TIME, idle_us, row.time_us))
                self.set(expiration_timer(_END, window, _LATENESS_US, None)[0])

    def advance(
        self, to: Instant, interruption: Interruption | None, most: int | None = None
    ) -> int | None:
        """Fire timers, as the harness does.

        Args:
            to: how far time advances.
            interruption: when to stop; None: see ``most``.
            most: how many fire before it was interrupted; None: it was not.

        Returns:
            After how many timers it was interrupted; None: it was not.
        """
        fired, was_interrupted = 0, False
        while self.timers:
            stops = fired == most
            if interruption is not None and not was_interrupted:
                stops = interruption.stops(self.timers.would_leave, to)
            if stops and not was_interrupted:
                to, was_interrupted, most = Instant(NEVER_US, to.clock_us), True, fired
            timer = self.timers.pop(to)
            if timer is None:
                break
            self._fire(timer)
            if not was_interrupted:
                fired += 1
                if interruption is not None:
                    interruption.fired()
        return fired if was_interrupted else None

    def _fire(self, timer: Timer) -> None:
        (family, tag, window), time_us = timer.id, timer.fires_us
        found = self.bag(window)
        match family:
            case "due":
                self._emit(timer, found)
                if found and tag == "1":
                    again_us = time_us + 2 * SECOND_US
                    self.set(Timer(timer.id, Domain.EVENT_TIME, again_us, again_us))
            case "idle":
                self._emit(timer, found)
                self.clear(window)
            case "end":
                self._emit(timer, found)
                self.drop(window)

    def _emit(self, timer: Timer, found: list[int]) -> None:
        about = f"{self.key}-{timer.id.family}{timer.id.tag}"
        element = WindowedValue(None, Timestamp(micros=timer.hold_us), (timer.id.window,))
        self._output.send(COUNTED, element, about, found)


def _expiry_us(window: Any) -> int:
    return expiry_us(window.max_timestamp().micros, _LATENESS_US)
