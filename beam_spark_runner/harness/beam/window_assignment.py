"""Assigns windows to elements, with a cache of the window fn's results."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    SlidingWindows,
    WindowFn,
)
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

MAX_WINDOWS = 10_000
"""The size of each cache of results by window."""

_GLOBAL = (GlobalWindow(),)


class Assignment:
    """Assigns windows by a window fn, called once for timestamps that have the same windows."""

    def __init__(self, window_fn: WindowFn) -> None:
        self._assign = window_fn.assign
        self._period = _period_of(window_fn)
        self._windows_of_period = functools.lru_cache(MAX_WINDOWS)(self._assign_in_period)
        self._always = _GLOBAL if type(window_fn) is GlobalWindows else None

    def windows_of(self, value: Any, origin: WindowedValue, window: Any) -> Sequence[Any]:
        """Return the new windows of a value in ``window``, by the timestamp of its origin."""
        windows = self._windows_at(origin.timestamp_micros)
        if windows is not None:
            return windows
        return self._assigned(WindowFn.AssignContext(origin.timestamp, value, window))

    def windows_at_each(self, times_us: Iterable[int]) -> list[Sequence[Any]] | None:
        """Return the windows of elements by their timestamps, or None if these do not suffice."""
        if self._period is None:
            return None
        (length, offset), windows_of = self._period, self._windows_of_period
        return [windows_of((at_us - offset) // length) for at_us in times_us]

    def assign(self, context: WindowFn.AssignContext) -> Sequence[Any]:
        """See ``WindowFn.assign``."""
        windows = self._windows_at(context.timestamp.micros)
        return self._assigned(context) if windows is None else windows

    def _assigned(self, context: WindowFn.AssignContext) -> Sequence[Any]:
        # An element without windows would be lost: it is an error here if the window fn returns
        # nothing. A tuple: elements share it, and Beam may multiply a list in place.
        return tuple(self._assign(context))

    def _windows_at(self, at_us: int) -> Sequence[Any] | None:
        """Return the windows of each element at a time, or None if they depend on the element."""
        if self._period is None:
            return self._always
        length, offset = self._period
        return self._windows_of_period((at_us - offset) // length)

    def _assign_in_period(self, number: int) -> Sequence[Any]:
        assert self._period is not None
        length, offset = self._period
        start = Timestamp(micros=number * length + offset)
        return self._assigned(WindowFn.AssignContext(start, None, None))


def _period_of(window_fn: WindowFn) -> tuple[int, int] | None:
    """Return the length and offset, in microseconds, of periods with the same windows, or None."""
    if type(window_fn) is FixedWindows:
        return window_fn.size.micros, window_fn.offset.micros
    if type(window_fn) is SlidingWindows and not window_fn.size.micros % window_fn.period.micros:
        return window_fn.period.micros, window_fn.offset.micros
    return None
