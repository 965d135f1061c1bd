"""The stand-in for a WindowFn of another SDK, whose windows an SDK harness merges."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from apache_beam.coders import Coder
from apache_beam.transforms.window import BoundedWindow, WindowFn

from beam_spark_runner.core.errors import FnApiProtocolError, InvariantError
from beam_spark_runner.portable.bounded import MalformedBytesError, decode_window
from beam_spark_runner.portable.windowing import decode_strategy
from beam_spark_runner.semantics.strategy import Strategy

MergeWindows = Callable[[Sequence[bytes]], Sequence[tuple[bytes, Sequence[bytes]]]]
"""Takes encoded windows of a key. Returns each merged window with the windows it is made of."""
_MAX_ANSWERS = 256


class Windowed(Protocol):
    """The windowing of a GroupByKey in the plan."""

    @property
    def coded_windowing(self) -> bytes:
        """A serialised WindowingStrategy."""

    @property
    def is_windowed_by_sdk(self) -> bool:
        """Whether only an SDK harness can run the WindowFn."""


def strategy_for(grouping: Windowed, window_coder: Coder, merge: MergeWindows | None) -> Strategy:
    """Return the strategy of a grouping, with a stand-in for a WindowFn of another SDK.

    Args:
        grouping: The windowing of the GroupByKey in the plan.
        window_coder: The coder of the windows.
        merge: Has an SDK harness merge windows; None: windows of another SDK do not merge.
    """
    if not grouping.is_windowed_by_sdk:
        return decode_strategy(grouping.coded_windowing)
    return decode_strategy(grouping.coded_windowing, SdkWindowFn(window_coder, merge))


class SdkWindowFn(WindowFn):  # type: ignore[misc]
    """Stands for a WindowFn of another SDK. It assigns no windows: elements already have theirs.

    Args:
        window_coder: The coder of the windows.
        merge: Has an SDK harness merge windows; None: they do not merge.
    """

    def __init__(self, window_coder: Coder, merge: MergeWindows | None) -> None:
        self._coder = window_coder
        # Keys often have the same windows as others, and each call runs a bundle in the SDK.
        self._merge = None if merge is None else functools.lru_cache(_MAX_ANSWERS)(merge)

    def assign(self, assign_context: WindowFn.AssignContext) -> Iterable[BoundedWindow]:
        """Never called: the SDK assigns windows."""
        raise InvariantError("the runner assigns no windows")

    def is_merging(self) -> bool:
        return self._merge is not None

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        """Have the SDK merge the windows, if there are several.

        Raises:
            FnApiProtocolError: The SDK has merged windows into bytes that are no window.
        """
        windows = list(merge_context.windows)
        if self._merge is None or len(windows) < 2:
            return
        coded = {self._coder.encode(window): window for window in windows}
        for result, parts in self._merge(tuple(sorted(coded))):
            try:
                result_window = decode_window(self._coder, result)
            except MalformedBytesError as error:
                raise FnApiProtocolError(
                    f"an SDK has merged windows into one that is malformed: {error}"
                ) from error
            merge_context.merge([coded[part] for part in parts], result_window)

    def get_window_coder(self) -> Coder:
        return self._coder

    def to_runner_api_parameter(self, context: Any) -> tuple[str, Any]:
        """Never called: the stand-in is not serialised."""
        raise InvariantError("the runner's stand-in for a WindowFn has no proto")
