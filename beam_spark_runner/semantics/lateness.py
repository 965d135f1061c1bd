"""Elements whose windows are over."""

from collections.abc import Callable
from typing import Any, TypeAlias

from apache_beam.utils.windowed_value import WindowedValue, create

IsOver: TypeAlias = Callable[[Any], bool]
"""Whether a window is over."""


class LateElements:
    """Counts the elements that a stage drops because they come too late.

    Attributes:
        dropped: so many; one that is in several windows counts for each of those that it is late
            for.

    Source: Java ``LateDataFilter``.
    """

    __slots__ = ("dropped",)

    def __init__(self) -> None:
        self.dropped = 0


def in_time(
    values: list[Any], origins: list[WindowedValue], is_over: IsOver, late: LateElements
) -> tuple[list[Any], list[WindowedValue]]:
    """Drop elements in windows that are over.

    Args:
        values: of the elements.
        origins: with their timestamps, windows and panes.
        is_over: asked for each window of each element.
        late: counts those that are dropped.

    Returns:
        The values and origins that remain, each in those of its windows that are not over.
    """
    if not any(is_over(window) for origin in origins for window in origin.windows):
        return values, origins
    kept: list[Any] = []
    kept_origins: list[WindowedValue] = []
    for value, origin in zip(values, origins, strict=True):
        windows = tuple(each for each in origin.windows if not is_over(each))
        late.dropped += len(origin.windows) - len(windows)
        if windows:
            kept.append(value)
            kept_origins.append(create(value, origin.timestamp_micros, windows, origin.pane_info))
    return kept, kept_origins
