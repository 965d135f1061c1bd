"""Times of the model, in milliseconds."""

from collections.abc import Iterable
from typing import Any, NamedTuple

START, END = -(10**17), 10**17
"""Before and after all of Beam's times."""
LAST_OF_PANES = 9_223_371_950_454_774
"""The end of the global window, in Python: no pane has a later time."""


class Element(NamedTuple):
    """An element in one window."""

    key: str
    numbers: tuple[int, ...]
    at: int
    window: Any
    pane: tuple[str, int] | tuple[()] = ()


class Now(NamedTuple):
    """How far time has come for a step."""

    before: int  # the watermark of its input when the event happened
    watermark: int  # and after it
    clock: int


def last_of(window: Any) -> int:
    """Return the last moment of a window."""
    return int(window.max_timestamp().micros) // 1000


def waiting_hold(element: Element) -> int:
    """Return the hold of an element that is kept: its time, but at most the end of its window."""
    return min(element.at, last_of(element.window))


def merged(windows: Iterable[Any], window_fn: Any) -> dict[Any, Any]:
    """Return what windows become that merge into others."""
    becomes = {}

    class Context(window_fn.MergeContext):  # type: ignore[misc]
        def merge(self, to_be_merged: Iterable[Any], result: Any) -> None:
            becomes.update({window: result for window in to_be_merged if window != result})

    window_fn.merge(Context(list(windows)))
    return becomes
