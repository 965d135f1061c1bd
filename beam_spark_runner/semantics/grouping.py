"""Grouping one key's values into windows and panes, where windows merge or triggers fire."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from apache_beam.transforms.core import Windowing
from apache_beam.transforms.timeutil import DependsOnlyOnWindow
from apache_beam.transforms.trigger import (
    DefaultTrigger,
    InMemoryUnmergedState,
    create_trigger_driver,
)
from apache_beam.transforms.window import TimestampCombiner, WindowFn
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue, create

from beam_spark_runner.core.time import whole_milliseconds


class Grouping(Protocol):
    """Turns all values of one key into the panes that a batch run fires. One thread at a time."""

    def panes(self, key: Any, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """Yield KV(key, values of the pane), windowed.

        Args:
            key: decoded.
            values: of the key, each in the windows that it was assigned to.
        """
        ...


def grouping_for(windowing: Windowing) -> Grouping:
    """Choose what groups under a windowing: the default trigger wants only merged windows."""
    is_default = type(windowing.triggerfn) is DefaultTrigger
    return WindowGrouping(windowing) if is_default else PaneGrouping(windowing)


class WindowGrouping:
    """One pane for each merged window: what the default trigger fires when the input ends.

    The same as ``PaneGrouping`` gives, without a state to keep for each window.
    """

    def __init__(self, windowing: Windowing) -> None:
        self._window_fn = windowing.windowfn
        self._timestamps = TimestampCombiner.get_impl(
            windowing.timestamp_combiner, windowing.windowfn
        )
        self._is_at_window = isinstance(self._timestamps, DependsOnlyOnWindow)

    def panes(self, key: Any, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """See ``Grouping.panes``."""
        unmerged: defaultdict[Any, list[WindowedValue]] = defaultdict(list)
        for value in values:
            for window in value.windows:
                unmerged[window].append(value)
        merging = _Merging(unmerged)
        self._window_fn.merge(merging)
        assign, combine = self._timestamps.assign_output_time, self._timestamps.merge
        timestamps: Sequence[Timestamp] = ()
        for window, elements in merging.merged(unmerged).items():
            if not self._is_at_window:
                timestamps = [assign(window, each.timestamp) for each in elements]
            timestamp = combine(window, timestamps)
            timestamp_us = whole_milliseconds(timestamp.micros)
            pane = (key, [each.value for each in elements])
            yield create(pane, timestamp_us, (window,), _ONLY_PANE)


# Beam's driver cannot know that the default trigger will not fire again.
_ONLY_PANE = PaneInfo(True, False, PaneInfoTiming.ON_TIME, 0, 0)


class _Merging(WindowFn.MergeContext):  # type: ignore[misc]
    """Notes which window becomes part of which."""

    def __init__(self, windows: Iterable[Any]) -> None:
        super().__init__(windows)
        self._becomes: dict[Any, Any] = {}

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        for window in to_be_merged:
            if window != merge_result:
                self._becomes[window] = merge_result

    def merged(
        self, unmerged: Mapping[Any, list[WindowedValue]]
    ) -> Mapping[Any, list[WindowedValue]]:
        if not self._becomes:
            return unmerged
        merged: defaultdict[Any, list[WindowedValue]] = defaultdict(list)
        for window, elements in unmerged.items():
            while window in self._becomes:
                window = self._becomes[window]
            merged[window] += elements
        return merged


class _StandingClock:
    """Processing time in a batch run: it stands still until every element is there."""

    def time(self) -> float:
        return 0.0


class PaneGrouping:
    """Lets Beam's trigger driver say which panes there are.

    A batch run has every element before the watermark moves, so that no
    element is late and processing-time triggers fire with the window. Which
    panes that gives, in which order, with which index and timing, is Beam's.
    """

    def __init__(self, windowing: Windowing) -> None:
        self._driver = create_trigger_driver(windowing, is_batch=True, clock=_StandingClock())

    def panes(self, key: Any, values: Iterable[WindowedValue]) -> Iterator[WindowedValue]:
        """See ``Grouping.panes``.

        Source: apache_beam.transforms.trigger, TriggerDriver.process_entire_key, which
            knows no processing time.
        """
        state = InMemoryUnmergedState()
        driver = self._driver
        for pane in driver.process_elements(state, values, MIN_TIMESTAMP, MIN_TIMESTAMP):
            yield _keyed(key, pane)
        while state.timers:
            due, _ = state.get_timers(
                clear=True, watermark=MAX_TIMESTAMP, processing_time=float("inf")
            )
            for window, (name, domain, time, _) in due:
                for pane in driver.process_timer(window, name, domain, time, state):
                    yield _keyed(key, pane)


def _keyed(key: Any, pane: WindowedValue) -> WindowedValue:
    timestamp_us = whole_milliseconds(pane.timestamp_micros)
    return create((key, pane.value), timestamp_us, pane.windows, pane.pane_info)
