"""A WindowFn that only its SDK knows: it merges windows where the SDK runs."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from apache_beam.coders import Coder
from apache_beam.transforms.window import BoundedWindow, WindowFn

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.portable.windowing import decode_strategy
from beam_spark_runner.semantics.strategy import Strategy

MergeWindows = Callable[[Sequence[bytes]], Sequence[tuple[bytes, Sequence[bytes]]]]
"""Takes encoded windows of a key. Returns each merged window with those that become part of it."""
_MOST_ANSWERS = 256


class Windowed(Protocol):
    """What a plan says of the windows of a GroupByKey."""

    @property
    def coded_windowing(self) -> bytes:
        """A serialised WindowingStrategy."""

    @property
    def is_windowed_by_sdk(self) -> bool:
        """Whether only an SDK harness can run the WindowFn."""


def strategy_for(grouping: Windowed, window_coder: Coder, merge: MergeWindows | None) -> Strategy:
    """Return the strategy of a grouping, with a stand-in for a WindowFn of another SDK.

    Args:
        grouping: see there.
        window_coder: of the windows.
        merge: where an SDK harness merges them.
    """
    if not grouping.is_windowed_by_sdk:
        return decode_strategy(grouping.coded_windowing)
    return decode_strategy(grouping.coded_windowing, SdkWindowFn(window_coder, merge))


class SdkWindowFn(WindowFn):  # type: ignore[misc]
    """Stands for the SDK's. It assigns no windows: elements come with theirs.

    Args:
        window_coder: of the windows.
        merge: has the SDK merge windows; None: they do not merge.
    """

    def __init__(self, window_coder: Coder, merge: MergeWindows | None) -> None:
        self._coder = window_coder
        # Keys often have the same windows as others; each question is a bundle of the SDK's.
        self._merge = None if merge is None else functools.lru_cache(_MOST_ANSWERS)(merge)

    def assign(self, assign_context: WindowFn.AssignContext) -> Iterable[BoundedWindow]:
        """Not the runner's business."""
        raise InvariantError("the runner assigns no windows")

    def is_merging(self) -> bool:
        return self._merge is not None

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        """Ask the SDK. A window that is alone has nothing to merge with."""
        windows = list(merge_context.windows)
        if self._merge is None or len(windows) < 2:
            return
        coded = {self._coder.encode(window): window for window in windows}
        for result, parts in self._merge(tuple(sorted(coded))):
            merge_context.merge([coded[part] for part in parts], self._coder.decode(result))

    def get_window_coder(self) -> Coder:
        return self._coder

    def to_runner_api_parameter(self, context: Any) -> tuple[str, Any]:
        """Travels nowhere."""
        raise InvariantError("the runner's stand-in for a WindowFn has no proto")
