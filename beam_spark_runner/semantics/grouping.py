"""Groups one key's values into windows and panes, where windows merge or triggers fire."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from apache_beam.transforms.timeutil import DependsOnlyOnWindow
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue, create

from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.semantics.merging import merged_windows
from beam_spark_runner.semantics.panes import PaneMachine
from beam_spark_runner.semantics.strategy import Strategy
from beam_spark_runner.semantics.timers import END_OF_TIME, START_OF_TIME
from beam_spark_runner.semantics.window_states import KeyWindows

ONLY_PANE = PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)
"""The only pane of a window of a non-merging WindowFn with the default trigger, in batch."""
MERGED_PANE = PaneInfo(True, False, PaneInfoTiming.ON_TIME, 0, 0)
"""The same for a merging WindowFn. Beam's own tests require that it is not the last."""


class Grouping(Protocol):
    """Turns all values of one key into the panes that a batch run fires. One thread at a time."""

    def panes(self, key: Any, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """Yield the panes as windowed values: KV(key, values of the pane).

        Args:
            key: The decoded key.
            values: The values of the key, each in the windows that it was assigned to.
        """
        ...


def grouping_for(strategy: Strategy) -> Grouping:
    """Choose the grouping for a strategy: with the default trigger, windows are only merged."""
    is_default = strategy.trigger.WhichOneof("trigger") in (None, "default")
    return WindowGrouping(strategy) if is_default else PaneGrouping(strategy)


class WindowGrouping:
    """Makes one pane for each merged window, as the default trigger does when the input ends.

    The values are those of ``PaneGrouping``, but there is no state for each window.
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
        for window, elements in self._merged_elements(unmerged).items():
            timestamp = self.output_time(window, (element.timestamp for element in elements))
            yield pane_of((key, [element.value for element in elements]), window, timestamp)

    def _merged_elements(
        self, unmerged: Mapping[Any, list[WindowedValue]]
    ) -> Mapping[Any, list[WindowedValue]]:
        becomes = self.merge(unmerged)
        if not becomes:
            return unmerged
        by_window: defaultdict[Any, list[WindowedValue]] = defaultdict(list)
        for window, elements in unmerged.items():
            by_window[becomes.get(window, window)] += elements
        return by_window

    def merge(self, windows: Iterable[Any]) -> Mapping[Any, Any]:
        """See ``merged_windows``."""
        return merged_windows(self._window_fn, windows) if self._merges else {}

    def output_time(self, window: Any, timestamps: Iterable[Timestamp]) -> Timestamp:
        """Combine the timestamps of a merged window's elements.

        Results for subsets of the elements can be combined by ``combine_times``.
        """
        if self._is_at_window:
            return self._timestamps.merge(window, ())
        assign = self._timestamps.assign_output_time
        return self._timestamps.merge(
            window, [assign(window, timestamp) for timestamp in timestamps]
        )

    def combine_times(self, window: Any, one: Timestamp, other: Timestamp) -> Timestamp:
        """Combine two results of ``output_time`` for the same window."""
        return self._timestamps.merge(window, (one, other))


def pane_of(value: Any, window: Any, timestamp: Timestamp) -> WindowedValue:
    """Return the only pane of a merged window."""
    return create(value, whole_milliseconds(timestamp.micros), (window,), MERGED_PANE)


class PaneGrouping:
    """Makes all panes in batch: after all elements of a key, its time advances to the end of time.

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
