"""The short way of grouping gives what the pane machine gives."""

from typing import Any

import pytest
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import AfterCount, AfterWatermark, DefaultTrigger
from apache_beam.transforms.window import (
    IntervalWindow,
    Sessions,
    TimestampCombiner,
    WindowFn,
)
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.semantics.grouping import PaneGrouping, WindowGrouping, grouping_for
from tests.unit.semantics.strategies import strategy_of


class ByParity(WindowFn):  # type: ignore[misc]
    """Merges in two rounds, and into windows that were there before; two windows an element."""

    def assign(self, assign_context: WindowFn.AssignContext) -> list[IntervalWindow]:
        start = int(assign_context.timestamp)
        return [IntervalWindow(start, start + 1), IntervalWindow(start + 1, start + 3)]

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        for parity in (0, 1):
            alike = [each for each in merge_context.windows if int(each.start) % 2 == parity]
            if len(alike) > 2:
                merge_context.merge(alike[1:], alike[1])
                merge_context.merge(alike[:2], IntervalWindow(100 + parity, 102))

    def get_window_coder(self) -> Any:
        return IntervalWindowCoder()


def comparable(panes: Any) -> list[Any]:
    """Return what both give alike: only the pane machine says that a pane is the last."""
    return sorted(
        (key, sorted(values), pane.timestamp, pane.windows, pane.pane_info.timing)
        for pane in panes
        for key, values in [pane.value]
    )


@pytest.mark.parametrize("window_fn", [Sessions(5), ByParity()])
@pytest.mark.parametrize(
    "combiner",
    [
        TimestampCombiner.OUTPUT_AT_EOW,
        TimestampCombiner.OUTPUT_AT_EARLIEST,
        TimestampCombiner.OUTPUT_AT_LATEST,
    ],
)
@given(times=st.lists(st.integers(0, 60), max_size=30))
def test_default_trigger(window_fn: Any, combiner: Any, times: list[int]) -> None:
    windowing = Windowing(window_fn, timestamp_combiner=combiner)
    values = [
        WindowedValue(
            place, time, tuple(window_fn.assign(WindowFn.AssignContext(Timestamp(time), place)))
        )
        for place, time in enumerate(times)
    ]
    short = comparable(WindowGrouping(strategy_of(windowing)).panes("key", values))
    assert short == comparable(PaneGrouping(strategy_of(windowing)).panes("key", values))
    assert bool(short) == bool(times)


class InCircles(ByParity):
    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        one, other, *_ = merge_context.windows
        merge_context.merge([one], other)
        merge_context.merge([other], one)


def test_windows_that_become_each_other() -> None:
    times = IntervalWindow(0, 1), IntervalWindow(1, 2)
    with pytest.raises(ValueError, match=r"InCircles.merge: .*\[0.0, 1.0\) becomes itself"):
        list(
            WindowGrouping(strategy_of(Windowing(InCircles()))).panes(
                "key", [WindowedValue(1, 0, times)]
            )
        )


def test_choice() -> None:
    assert isinstance(grouping_for(strategy_of(Windowing(Sessions(5)))), WindowGrouping)
    early = AfterWatermark(early=AfterCount(2))
    for trigger in (AfterCount(2), early):
        windowing = Windowing(Sessions(5), trigger, accumulation_mode=1)
        assert isinstance(grouping_for(strategy_of(windowing)), PaneGrouping)
    assert isinstance(
        grouping_for(strategy_of(Windowing(Sessions(5), DefaultTrigger()))), WindowGrouping
    )
