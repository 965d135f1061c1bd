"""Which windows a window fn assigns to elements."""

from collections.abc import Sequence
from typing import Any

from apache_beam.transforms.window import FixedWindows, GlobalWindows, SlidingWindows, WindowFn
from apache_beam.utils.windowed_value import WindowedValue


class Assignment:
    """What windows a window fn assigns; asked once where many timestamps have the same."""

    def __init__(self, window_fn: WindowFn) -> None:
        self._assign = window_fn.assign
        self._period = _period_of(window_fn)
        self._windows: dict[int, Sequence[Any]] = {}  # of a period

    def windows_of(self, value: Any, origin: WindowedValue, window: Any) -> Sequence[Any]:
        """Return the windows of a value at the timestamp of its origin; now it is in ``window``."""
        if self._period is None:
            windows: Sequence[Any] = self._assign(
                WindowFn.AssignContext(origin.timestamp, value, window)
            )
            return windows
        length, offset = self._period
        place = (origin.timestamp_micros - offset) // length
        known = self._windows.get(place)
        if known is None:
            if len(self._windows) > 10_000:
                self._windows.clear()
            # A tuple: Beam may multiply what elements share.
            known = tuple(self._assign(WindowFn.AssignContext(origin.timestamp, value, window)))
            self._windows[place] = known
        return known


def _period_of(window_fn: WindowFn) -> tuple[int, int] | None:
    """Length and offset in microseconds of the periods within which the windows are the same."""
    if type(window_fn) is GlobalWindows:
        return 1 << 64, -(1 << 63)  # all of time
    if type(window_fn) is FixedWindows:
        return window_fn.size.micros, window_fn.offset.micros
    if type(window_fn) is SlidingWindows and not window_fn.size.micros % window_fn.period.micros:
        return window_fn.period.micros, window_fn.offset.micros
    return None
