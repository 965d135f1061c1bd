"""Merges the accumulators of long windows, so that their stored values stay small."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.grouping.stored_panes import PaneBags, StoredPane, StoredPaneValues
from beam_spark_runner.harness.grouping.stored_windows import StoredWindows
from beam_spark_runner.semantics.window_states import WindowState

_MAX_WINDOWS = 1000
_MAX_BYTES = 16 << 20

MergeAccumulators = Callable[[Sequence[WindowedValue]], Sequence[Any]]
"""Maps elements KV<key, accumulators> to one merged accumulator each."""


class LongWindow(NamedTuple):
    """A window of a key, whose values are accumulators. It has been saved to the store."""

    key: object
    coded_key: bytes
    window: Any
    coded_window: bytes
    state: WindowState
    values: StoredPaneValues


class LongWindows:
    """Long windows whose accumulators are to be merged, many windows in one call.

    Args:
        windows: The store of the windows.
        bags: The store of their values.
        merge: Merges accumulators.
    """

    def __init__(self, windows: StoredWindows, bags: PaneBags, merge: MergeAccumulators) -> None:
        self._windows, self._bags, self._merge = windows, bags, merge
        self._waiting: dict[bytes, list[LongWindow]] = {}  # by encoded key
        self._bytes = 0

    def __contains__(self, coded_key: bytes) -> bool:
        """Whether windows of a key are pending: ``merge`` must be called before they are loaded."""
        return coded_key in self._waiting

    def add(self, windows: Iterable[LongWindow]) -> None:
        """Add windows that are worth merging; merge all if too many are pending."""
        for each in windows:
            self._waiting.setdefault(each.coded_key, []).append(each)
            self._bytes += each.values.stored_bytes
        if len(self._waiting) >= _MAX_WINDOWS or self._bytes >= _MAX_BYTES:
            self.merge()

    def merge(self) -> None:
        """Merge the accumulators of all pending windows, and store the results."""
        waiting = [each for windows in self._waiting.values() for each in windows]
        self._waiting, self._bytes = {}, 0
        if not waiting:
            return
        merged = self._merge([*map(self._group_of, waiting)])
        for each, accumulator in zip(waiting, merged, strict=True):
            self._bags.key = each.coded_key
            self._bags.replace(each.values, accumulator)
            self._windows.write(each.coded_key, each.coded_window, each.state)

    def _group_of(self, each: LongWindow) -> WindowedValue:
        self._bags.key = each.coded_key
        pane = each.values.pane(keeps=True)
        values = [*map(pane.decode, pane.coded)] if isinstance(pane, StoredPane) else pane
        return WindowedValue((each.key, values), each.window.max_timestamp(), (each.window,))
