import itertools
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterAll,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Repeatedly,
    _Never,
)
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    TimestampCombiner,
)
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue, create

from beam_spark_runner.core.time import END_OF_GLOBAL_WINDOW_US, whole_milliseconds
from beam_spark_runner.semantics.grouping import Grouping, PaneGrouping, WindowGrouping
from beam_spark_runner.semantics.panes import PaneMachine
from beam_spark_runner.semantics.strategy import Strategy
from beam_spark_runner.semantics.timers import START_OF_TIME, Instant
from beam_spark_runner.semantics.window_states import KeyWindows
from tests.unit.semantics.strategies import strategy_of


@pytest.mark.parametrize("grouping", [WindowGrouping, PaneGrouping])
def test_panes_have_the_timestamps_of_beams_wire(
    grouping: Callable[[Strategy], Grouping],
) -> None:
    values = [WindowedValue(n, n, (IntervalWindow(n, n + 2),)) for n in (1, 2, 4)]
    panes = list(grouping(strategy_of(Windowing(Sessions(2)))).panes("key", values))
    assert [(pane.value, pane.timestamp.micros, pane.windows) for pane in panes] == [
        (("key", [1, 2]), 3_999_000, (IntervalWindow(1, 4),)),
        (("key", [4]), 5_999_000, (IntervalWindow(4, 6),)),
    ]


def test_the_pane_of_a_merged_window() -> None:
    """Of two tests of Beam's own: ``ReshuffleTest.test_reshuffle_window*`` in ``util_test``."""
    values = [WindowedValue(1, 1, (IntervalWindow(1, 3),))]
    (pane,) = WindowGrouping(strategy_of(Windowing(Sessions(2)))).panes("key", values)
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
    panes = list(itertools.islice(PaneGrouping(strategy_of(windowing)).panes("key", values), 9))
    assert [pane.value for pane in panes] == [("key", values) for values in expected]
    assert {(pane.timestamp.micros, pane.windows) for pane in panes} == {(9_999_000, (window,))}


@pytest.mark.parametrize(
    ("trigger", "mode", "expected"),
    [
        pytest.param(Repeatedly(AfterCount(3)), AccumulationMode.ACCUMULATING, [[1, 2, 3]] * 2),
        pytest.param(Repeatedly(AfterCount(3)), AccumulationMode.DISCARDING, [[1, 2, 3], []]),
        pytest.param(Repeatedly(AfterCount(4)), AccumulationMode.DISCARDING, [[1, 2, 3]]),
        pytest.param(AfterCount(3), AccumulationMode.DISCARDING, [[1, 2, 3]]),
        pytest.param(AfterWatermark(), AccumulationMode.DISCARDING, [[1, 2, 3]]),
    ],
    ids=["all again", "empty", "not empty", "closed by its trigger", "on time"],
)
def test_the_last_pane_of_a_window_with_closing_behavior_emit_always(
    trigger: Any, mode: int, expected: list[list[int]]
) -> None:
    """Java's ``Window.ClosingBehavior.FIRE_ALWAYS``: exactly one pane is the last one."""
    always = beam_runner_api_pb2.ClosingBehavior.EMIT_ALWAYS
    windowing = Windowing(FixedWindows(10), trigger, accumulation_mode=mode)
    values = [WindowedValue(n, n, (WINDOW,)) for n in (1, 2, 3)]
    panes = list(PaneGrouping(strategy_of(windowing, always)).panes("key", values))
    assert [pane.value for pane in panes] == [("key", values) for values in expected]
    assert [pane.pane_info.is_last for pane in panes] == [False] * (len(expected) - 1) + [True]


def test_an_empty_last_pane_is_held_until_its_window_expires() -> None:
    always = beam_runner_api_pb2.ClosingBehavior.EMIT_ALWAYS
    windowing = Windowing(
        FixedWindows(10),
        Repeatedly(AfterWatermark()),
        accumulation_mode=AccumulationMode.DISCARDING,
        allowed_lateness=5,
    )
    machine = PaneMachine(strategy_of(windowing, always))
    windows: KeyWindows = {}
    [*machine.add(windows, [WindowedValue(1, 1, (WINDOW,))], START_OF_TIME)]
    on_time = Instant(10_000_000, 0)
    (pane,) = machine.advance(windows, on_time)
    (state,) = windows.values()
    assert (pane.value, pane.pane_info.is_last) == ([1], False)
    assert machine.hold_us(state) == 14_999_999
    assert machine.due(state, on_time) == (15_000_000, None)
    assert not [*machine.advance(windows, Instant(14_999_999, 0))]
    (last,) = machine.advance(windows, Instant(15_000_000, 0))
    assert (last.value, last.pane_info.is_last, last.timestamp.micros) == ([], True, 9_999_000)
    assert last.pane_info.timing == PaneInfoTiming.LATE
    assert not windows


WINDOW = IntervalWindow(0, 10)
_DISCARDING = AccumulationMode.DISCARDING


def _fired(
    windowing: Windowing, *steps: tuple[int, list[int]]
) -> list[tuple[list[int], float, str]]:
    """Return the panes of a key: values, timestamp in seconds, timing.

    Args:
        windowing: of windows of ten seconds; the first one counts.
        steps: elements that come, by their seconds; then a watermark.
    """
    machine = PaneMachine(strategy_of(windowing))
    windows: KeyWindows = {}
    before = START_OF_TIME
    panes: list[WindowedValue] = []
    for watermark, times in steps:
        now = Instant(watermark * 1_000_000, 0)
        elements = [WindowedValue(time, time, (WINDOW,)) for time in times]
        panes += [*machine.add(windows, elements, before), *machine.advance(windows, now)]
        before = now
    return [
        (
            pane.value,
            pane.timestamp.micros / 1e6,
            PaneInfoTiming.to_string(pane.pane_info.timing),
        )
        for pane in panes
    ]


@pytest.mark.parametrize(
    ("at", "times"),
    [
        (TimestampCombiner.OUTPUT_AT_EARLIEST, [1, 5, 9.999]),
        (TimestampCombiner.OUTPUT_AT_LATEST, [3, 6, 9.999]),
    ],
)
def test_a_pane_has_the_time_of_what_came_since_the_last_one(at: str, times: list[float]) -> None:
    """``OutputTime`` of beam_runner_api.proto: of the input elements since the last output."""
    windowing = Windowing(
        FixedWindows(10),
        AfterWatermark(early=AfterCount(2)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
        timestamp_combiner=at,
    )
    panes = _fired(windowing, (0, [1, 3]), (2, [5, 6]), (10, []))
    assert [time for _, time, _ in panes] == times


def test_a_pane_that_may_be_empty_holds_the_watermark_at_the_end_of_its_window() -> None:
    windowing = Windowing(
        FixedWindows(10),
        AfterWatermark(early=AfterCount(1)),
        accumulation_mode=AccumulationMode.DISCARDING,
        allowed_lateness=5,
    )
    machine = PaneMachine(strategy_of(windowing))
    windows: KeyWindows = {}
    [*machine.add(windows, [WindowedValue(1, 1, (WINDOW,))], START_OF_TIME)]
    (state,) = windows.values()
    assert machine.hold_us(state) == 9_999_999
    [*machine.advance(windows, Instant(10_000_000, 0))]
    assert machine.hold_us(state) is None


def test_a_late_element_that_waits_holds_the_watermark_where_its_window_is_over() -> None:
    """``WatermarkHold.addGarbageCollectionHold`` of Beam's Java runners."""
    windowing = Windowing(
        FixedWindows(10),
        AfterWatermark(late=AfterCount(2)),
        accumulation_mode=AccumulationMode.DISCARDING,
        allowed_lateness=5,
    )
    machine = PaneMachine(strategy_of(windowing))
    windows: KeyWindows = {}
    late = Instant(12_000_000, 0)
    [*machine.add(windows, [WindowedValue(0, 1, (WINDOW,))], START_OF_TIME)]
    assert len([*machine.advance(windows, late)]) == 1
    assert [*machine.add(windows, [WindowedValue(1, 1, (WINDOW,))], late)] == []
    (state,) = windows.values()
    assert machine.hold_us(state) == 14_999_999
    (pane,) = machine.add(windows, [WindowedValue(2, 1, (WINDOW,))], late)
    assert (pane.value, pane.pane_info.timing) == ([1, 2], PaneInfoTiming.LATE)
    assert machine.hold_us(state) is None


@pytest.mark.parametrize("trigger", [_Never(), Repeatedly(AfterCount(3))])
def test_a_late_pane_has_nothing_that_was_on_time(trigger: Any) -> None:
    """Consistency, in the documentation of ``PaneInfo``; and ``Never`` in beam_runner_api.proto:
    "There will only be an ON_TIME final output at window expiration."
    """
    windowing = Windowing(
        FixedWindows(10), trigger, accumulation_mode=AccumulationMode.DISCARDING, allowed_lateness=5
    )
    assert _fired(windowing, (0, [1, 2]), (12, []), (15, [])) == [([1, 2], 9.999, "ON_TIME")]


def test_a_pane_of_late_elements_is_late() -> None:
    windowing = Windowing(
        FixedWindows(10),
        Repeatedly(AfterCount(2)),
        accumulation_mode=AccumulationMode.DISCARDING,
        allowed_lateness=5,
    )
    panes = _fired(windowing, (0, [1, 2]), (12, []), (13, [3, 4]))
    assert panes == [([1, 2], 9.999, "EARLY"), ([3, 4], 9.999, "LATE")]


def test_the_global_window_gets_elements_at_its_last_timestamp_in_the_model() -> None:
    """That of Beam's Python class is a microsecond earlier."""
    machine = PaneMachine(strategy_of(Windowing(GlobalWindows())))
    windows: KeyWindows = {}
    last = Instant(END_OF_GLOBAL_WINDOW_US, 0)
    value = create(1, END_OF_GLOBAL_WINDOW_US, (GlobalWindow(),))
    assert not [*machine.add(windows, [value], last), *machine.advance(windows, last)]
    assert machine.due(windows[GlobalWindow()], last)[0] == END_OF_GLOBAL_WINDOW_US + 1
    (pane,) = machine.advance(windows, Instant(END_OF_GLOBAL_WINDOW_US + 1, 0))
    assert (pane.value, pane.pane_info.timing) == ([1], PaneInfoTiming.ON_TIME)
    assert pane.timestamp.micros == whole_milliseconds(GlobalWindow().max_timestamp().micros)


def test_a_clock_that_a_trigger_has_seen_is_not_due_again() -> None:
    """Else a pipeline would look again and again, and no time would pass."""
    trigger = Repeatedly(AfterAll(AfterCount(2), AfterProcessingTime(5)))
    windowing = Windowing(FixedWindows(10), trigger, accumulation_mode=_DISCARDING)
    machine = PaneMachine(strategy_of(windowing))
    windows: KeyWindows = {}
    now = Instant(0, 0)
    assert not [*machine.add(windows, [WindowedValue(1, 1, (WINDOW,))], now)]
    (state,) = windows.values()
    assert machine.due(state, now) == (10_000_000, 5_000_000)
    now = Instant(0, 5_000_000)
    assert not [*machine.advance(windows, now)]
    assert machine.due(state, now) == (10_000_000, None)
    assert [*machine.add(windows, [WindowedValue(2, 2, (WINDOW,))], now)]


def test_a_late_element_counts_for_the_time_of_a_pane_that_is_held_before_it() -> None:
    """``OutputTime`` in beam_runner_api.proto; nothing has passed the hold of the window."""
    windowing = Windowing(FixedWindows(10), timestamp_combiner=TimestampCombiner.OUTPUT_AT_LATEST)
    assert _fired(windowing, (7, [4]), (8, [6, 2]), (10, [])) == [([4, 6, 2], 6, "ON_TIME")]


@pytest.mark.parametrize("mode", [AccumulationMode.DISCARDING, AccumulationMode.ACCUMULATING])
@pytest.mark.parametrize(
    ("times", "window"),
    [
        ([5], IntervalWindow(5, 15)),
        # The window of the first one bears the name of the closed one, and is new.
        ([0, 5], IntervalWindow(0, 15)),
    ],
)
def test_a_window_that_is_closed_merges_no_more(
    mode: int, times: list[int], window: IntervalWindow
) -> None:
    """``PaneInfo``: once it has had its final pane, it is not merged into any new window."""
    windowing = Windowing(
        Sessions(10), AfterWatermark(), accumulation_mode=mode, allowed_lateness=20
    )
    machine = PaneMachine(strategy_of(windowing))
    windows: KeyWindows = {}
    before = START_OF_TIME
    panes: list[WindowedValue] = []
    steps: list[tuple[int, list[int]]] = [(12, [0]), (13, times), (16, [])]
    for watermark, seconds in steps:
        elements = [WindowedValue(n, n, (IntervalWindow(n, n + 10),)) for n in seconds]
        now = Instant(watermark * 1_000_000, 0)
        panes += [*machine.add(windows, elements, before), *machine.advance(windows, now)]
        before = now
    assert [(sorted(pane.value), pane.windows) for pane in panes] == [
        ([0], (IntervalWindow(0, 10),)),
        (times, (window,)),
    ]
