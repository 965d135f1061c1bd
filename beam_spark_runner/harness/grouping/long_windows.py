"""Merges the accumulators of long windows, so that their stored values stay small."""

import itertools
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
        self._pending: dict[bytes, list[LongWindow]] = {}  # by encoded key
        self._bytes = 0

    def __contains__(self, coded_key: bytes) -> bool:
        """Whether windows of a key are pending: ``merge`` must be called before they are loaded."""
        return coded_key in self._pending

    def add(self, windows: Iterable[LongWindow]) -> None:
        """Add windows that are worth merging; merge all if too many are pending."""
        for long_window in windows:
            self._pending.setdefault(long_window.coded_key, []).append(long_window)
            self._bytes += long_window.values.stored_bytes
        if len(self._pending) >= _MAX_WINDOWS or self._bytes >= _MAX_BYTES:
            self.merge()

    def merge(self) -> None:
        """Merge the accumulators of all pending windows, and store the results."""
        pending_windows = [*itertools.chain.from_iterable(self._pending.values())]
        self._pending, self._bytes = {}, 0
        if not pending_windows:
            return
        accumulators = self._merge([*map(self._group_of, pending_windows)])
        for long_window, accumulator in zip(pending_windows, accumulators, strict=True):
            self._bags.key = long_window.coded_key
            self._bags.replace(long_window.values, accumulator)
            self._windows.write(long_window.coded_key, long_window.coded_window, long_window.state)

    def _group_of(self, long_window: LongWindow) -> WindowedValue:
        self._bags.key = long_window.coded_key
        pane = long_window.values.pane(keeps=True)
        values = [*map(pane.decode, pane.coded)] if isinstance(pane, StoredPane) else pane
        return WindowedValue(
            (long_window.key, values), long_window.window.max_timestamp(), (long_window.window,)
        )
