"""Elements whose windows are over."""

from collections.abc import Callable
from typing import Any, TypeAlias

from apache_beam.utils.windowed_value import WindowedValue, create

IsOver: TypeAlias = Callable[[Any], bool]
"""Whether a window is over."""


def in_time(
    values: list[Any], origins: list[WindowedValue], is_over: IsOver
) -> tuple[list[Any], list[WindowedValue]]:
    """Drop elements in windows that are over.

    Args:
        values: of the elements.
        origins: with their timestamps, windows and panes.
        is_over: asked for each window of each element.

    Returns:
        The values and origins that remain, each in those of its windows that are not over.
    """
    if not any(is_over(window) for origin in origins for window in origin.windows):
        return values, origins
    kept: list[Any] = []
    kept_origins: list[WindowedValue] = []
    for value, origin in zip(values, origins, strict=True):
        windows = tuple(each for each in origin.windows if not is_over(each))
        if windows:
            kept.append(value)
            kept_origins.append(create(value, origin.timestamp_micros, windows, origin.pane_info))
    return kept, kept_origins
