"""Grouping one key's values into windows and panes, where windows merge or triggers fire."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from apache_beam.transforms.timeutil import DependsOnlyOnWindow
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue, create

from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.semantics.merging import merged_windows
from beam_spark_runner.semantics.panes import KeyWindows, PaneMachine
from beam_spark_runner.semantics.strategy import Strategy
from beam_spark_runner.semantics.timers import END_OF_TIME, START_OF_TIME

ONLY_PANE = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
"""Of a window that does not merge and has the default trigger, which fires when the input ends."""
MERGED_PANE = PaneInfo(True, False, PaneInfoTiming.ON_TIME, 0, 0)
"""The same of a window that may merge. Beam's own tests want it not to be the last."""


class Grouping(Protocol):
    """Turns all values of one key into the panes that a batch run fires. One thread at a time."""

    def panes(self, key: Any, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """Yield KV(key, values of the pane), windowed.

        Args:
            key: decoded.
            values: of the key, each in the windows that it was assigned to.
        """
        ...


def grouping_for(strategy: Strategy) -> Grouping:
    """Choose what groups under a strategy: the default trigger wants only merged windows."""
    is_default = strategy.trigger.WhichOneof("trigger") in (None, "default")
    return WindowGrouping(strategy) if is_default else PaneGrouping(strategy)


class WindowGrouping:
    """One pane for each merged window: what the default trigger fires when the input ends.

    The same as ``PaneGrouping`` gives, without a state for each window.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._window_fn, self._merges = strategy.window_fn, strategy.merges
        self._timestamps = TimestampCombiner.get_impl(
            strategy.timestamp_combiner, strategy.window_fn
        )
        self._is_at_window = isinstance(self._timestamps, DependsOnlyOnWindow)

    def panes(self, key: Any, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """See ``Grouping.panes``."""
        unmerged: defaultdict[Any, list[WindowedValue]] = defaultdict(list)
        for value in values:
            for window in value.windows:
                unmerged[window].append(value)
        for window, elements in self._merged(unmerged).items():
            timestamp = self.output_time(window, (each.timestamp for each in elements))
            yield pane_of((key, [each.value for each in elements]), window, timestamp)

    def _merged(
        self, unmerged: Mapping[Any, list[WindowedValue]]
    ) -> Mapping[Any, list[WindowedValue]]:
        becomes = self.merge(unmerged)
        if not becomes:
            return unmerged
        merged: defaultdict[Any, list[WindowedValue]] = defaultdict(list)
        for window, elements in unmerged.items():
            merged[becomes.get(window, window)] += elements
        return merged

    def merge(self, windows: Iterable[Any]) -> Mapping[Any, Any]:
        """See ``merged_windows``."""
        return merged_windows(self._window_fn, windows) if self._merges else {}

    def output_time(self, window: Any, timestamps: Iterable[Timestamp]) -> Timestamp:
        """Combine the timestamps of a merged window's elements.

        What this has combined of some of them may be combined once more, by
        ``combine_times``, with that of others.
        """
        if self._is_at_window:
            return self._timestamps.merge(window, ())
        assign = self._timestamps.assign_output_time
        return self._timestamps.merge(window, [assign(window, each) for each in timestamps])

    def combine_times(self, window: Any, one: Timestamp, other: Timestamp) -> Timestamp:
        """Combine two of what ``output_time`` gave."""
        return self._timestamps.merge(window, (one, other))


def pane_of(value: Any, window: Any, timestamp: Timestamp) -> WindowedValue:
    """Return the only pane of a merged window."""
    return create(value, whole_milliseconds(timestamp.micros), (window,), MERGED_PANE)


class PaneGrouping:
    """All panes of a batch run: every element is there before time moves, at once to its end.

    So no element is late, and processing-time triggers fire with the window.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._machine = PaneMachine(strategy)

    def panes(self, key: Any, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """See ``Grouping.panes``."""
        windows: KeyWindows = {}
        machine = self._machine
        for pane in machine.add(windows, values, START_OF_TIME):
            yield pane.with_value((key, pane.value))
        for pane in machine.advance(windows, END_OF_TIME):
            yield pane.with_value((key, pane.value))
