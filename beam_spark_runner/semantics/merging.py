"""Computes which windows of a key a WindowFn merges."""

from collections.abc import Iterable, Mapping
from typing import Any

from apache_beam.transforms.window import WindowFn


def merged_windows(window_fn: WindowFn, windows: Iterable[Any]) -> dict[Any, Any]:
    """Return the final merged window of each window that is merged into another one.

    Windows that do not change are not among the keys.

    Args:
        window_fn: The WindowFn that merges.
        windows: All windows of one key.

    Raises:
        ValueError: The WindowFn merges windows into each other in a circle.
    """
    merging = _Merging(windows)
    window_fn.merge(merging)
    return {window: _last(window_fn, window, merging.becomes) for window in merging.becomes}


def _last(window_fn: WindowFn, window: Any, becomes: Mapping[Any, Any]) -> Any:
    last = window
    for _ in becomes:  # the greatest number of merges without a circle
        last = becomes[last]
        if last not in becomes:
            return last
    raise ValueError(f"{type(window_fn).__name__}.merge: the window {window} becomes itself")


class _Merging(WindowFn.MergeContext):  # type: ignore[misc]
    """Records which window is merged into which."""

    def __init__(self, windows: Iterable[Any]) -> None:
        super().__init__(windows)
        self.becomes: dict[Any, Any] = {}

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        for window in to_be_merged:
            if window != merge_result:
                self.becomes[window] = merge_result
