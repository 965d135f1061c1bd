import itertools
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Repeatedly,
    _Never,
)
from apache_beam.transforms.window import FixedWindows, IntervalWindow, Sessions
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue

from beam_spark_runner.semantics.grouping import Grouping, PaneGrouping, WindowGrouping


@pytest.mark.parametrize("grouping", [WindowGrouping, PaneGrouping])
def test_panes_have_the_timestamps_of_beams_wire(
    grouping: Callable[[Windowing], Grouping],
) -> None:
    values = [WindowedValue(n, n, (IntervalWindow(n, n + 2),)) for n in (1, 2, 4)]
    panes = list(grouping(Windowing(Sessions(2))).panes("key", values))
    assert [(pane.value, pane.timestamp.micros, pane.windows) for pane in panes] == [
        (("key", [1, 2]), 3_999_000, (IntervalWindow(1, 4),)),
        (("key", [4]), 5_999_000, (IntervalWindow(4, 6),)),
    ]


def test_the_pane_of_a_merged_window() -> None:
    """Of two tests of Beam's own: ``ReshuffleTest.test_reshuffle_window*`` in ``util_test``."""
    values = [WindowedValue(1, 1, (IntervalWindow(1, 3),))]
    (pane,) = WindowGrouping(Windowing(Sessions(2))).panes("key", values)
    assert pane.pane_info == PaneInfo(True, False, PaneInfoTiming.ON_TIME, 0, 0)


@pytest.mark.parametrize(
    ("trigger", "mode", "expected"),
    [
        pytest.param(_Never(), AccumulationMode.DISCARDING, [[1, 2, 3]], id="never: nothing lost"),
        pytest.param(
            AfterWatermark(early=AfterCount(2)),
            AccumulationMode.ACCUMULATING,
            [[1, 2, 3], [1, 2, 3]],
            id="early and on time",
        ),
        pytest.param(
            AfterWatermark(early=AfterCount(2)),
            AccumulationMode.DISCARDING,
            [[1, 2, 3], []],
            id="early, and then nothing new",
        ),
        pytest.param(
            Repeatedly(AfterProcessingTime(10)),
            AccumulationMode.DISCARDING,
            [[1, 2, 3]],
            id="the clock jumps once all is there",
        ),
    ],
)
def test_panes_of_triggers(trigger: Any, mode: int, expected: list[list[int]]) -> None:
    window = IntervalWindow(0, 10)
    windowing = Windowing(FixedWindows(10), trigger, accumulation_mode=mode)
    values = [WindowedValue(n, n, (window,)) for n in (1, 2, 3)]
    panes = list(itertools.islice(PaneGrouping(windowing).panes("key", values), 9))
    assert [pane.value for pane in panes] == [("key", values) for values in expected]
    assert {(pane.timestamp.micros, pane.windows) for pane in panes} == {(9_999_000, (window,))}
