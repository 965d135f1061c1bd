"""Drops elements whose windows have expired, and holds the watermark for those that wait."""

from collections.abc import Callable
from typing import Any, TypeAlias

from apache_beam.utils.windowed_value import WindowedValue, create

IsExpired: TypeAlias = Callable[[Any], bool]
"""Returns whether a window has expired."""


def waiting_hold_us(element: WindowedValue) -> int:
    """Return the event time at which an element holds the watermark while a step keeps it.

    That is its timestamp, but at most the end of its windows: an element may have a timestamp after
    the end of its window, and a grouping downstream would drop it if the watermark went there.
    """
    hold_us: int = element.timestamp_micros
    for window in element.windows:
        hold_us = min(hold_us, window.max_timestamp().micros)
    return hold_us


class LateElements:
    """Counts the elements that a stage drops because their windows have expired.

    Attributes:
        dropped: The number of dropped elements; an element counts once for each expired window.

    Source: Java ``LateDataFilter``.
    """

    __slots__ = ("dropped",)

    def __init__(self) -> None:
        self.dropped = 0


def drop_expired(
    values: list[Any], origins: list[WindowedValue], is_over: IsExpired, late: LateElements
) -> tuple[list[Any], list[WindowedValue]]:
    """Drop elements from windows that have expired.

    Args:
        values: The values of the elements.
        origins: Their timestamps, windows and panes.
        is_over: Returns whether a window has expired.
        late: Counts the dropped elements.

    Returns:
        The remaining values and origins, each in those of its windows that have not expired.
    """
    if not _any_over(origins, is_over):
        return values, origins
    kept_values: list[Any] = []
    kept_origins: list[WindowedValue] = []
    for value, origin in zip(values, origins, strict=True):
        windows = tuple(window for window in origin.windows if not is_over(window))
        late.dropped += len(origin.windows) - len(windows)
        if windows:
            kept_values.append(value)
            kept_origins.append(create(value, origin.timestamp_micros, windows, origin.pane_info))
    return kept_values, kept_origins


def _any_over(origins: list[WindowedValue], is_over: IsExpired) -> bool:
    in_time_before = None  # many elements in a row share one window
    for origin in origins:
        for window in origin.windows:
            if window is in_time_before:
                continue
            if is_over(window):
                return True
            in_time_before = window
    return False
