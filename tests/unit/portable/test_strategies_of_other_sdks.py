"""Windowing strategies that Beam's Python cannot express, as Java makes them."""

from collections.abc import Sequence
from typing import Any

import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import FixedWindows, IntervalWindow, Sessions
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.portable.windowing import decode_strategy, decode_window_fn
from beam_spark_runner.semantics.grouping import Grouping, PaneGrouping, WindowGrouping
from beam_spark_runner.semantics.panes import PaneMachine
from beam_spark_runner.semantics.timers import END_OF_TIME, START_OF_TIME, Instant
from beam_spark_runner.semantics.window_states import KeyWindows

_Trigger = beam_runner_api_pb2.Trigger
_Transform = beam_runner_api_pb2.TimestampTransform
_SECOND_US = 1_000_000


def strategy_proto(window_fn: Any) -> Any:
    proto = Windowing(window_fn).to_runner_api(PipelineContext())
    proto.closing_behavior = beam_runner_api_pb2.ClosingBehavior.EMIT_IF_NONEMPTY
    return proto


def delay(millis: int) -> Any:
    return _Transform(delay=_Transform.Delay(delay_millis=millis))


def align(period: int, offset: int = 0) -> Any:
    return _Transform(align_to=_Transform.AlignTo(period=period, offset=offset))


@pytest.mark.parametrize(
    ("transforms", "due_us"),
    [
        ([], 100 * _SECOND_US),
        ([delay(500)], 100 * _SECOND_US + 500_000),
        ([delay(2_500)], 102 * _SECOND_US + 500_000),
        ([delay(5_000), delay(7_000)], 112 * _SECOND_US),
        ([align(60_000)], 120 * _SECOND_US),
        ([align(60_000, 15_000)], 135 * _SECOND_US),
        ([delay(25_000), align(60_000)], 180 * _SECOND_US),
        ([delay((1 << 63) - 1)], MAX_US),
    ],
)
def test_delays_of_processing_time(transforms: Sequence[Any], due_us: int) -> None:
    proto = strategy_proto(FixedWindows(10))
    after = _Trigger.AfterProcessingTime(timestamp_transforms=transforms)
    proto.trigger.CopyFrom(_Trigger(after_processing_time=after))
    coded = proto.SerializeToString()
    assert decode_window_fn(coded) == FixedWindows(10)
    machine = PaneMachine(decode_strategy(coded))
    windows: KeyWindows = {}
    first = WindowedValue(1, Timestamp(1), (IntervalWindow(0, 10),))
    early = Instant(0, 100 * _SECOND_US)
    fired = [*machine.add(windows, [first], early)]
    if due_us == early.clock_us:
        assert [pane.value for pane in fired] == [[1]]
        return
    assert not fired
    (state,) = windows.values()
    assert machine.due(state, early)[1] == due_us
    assert not [*machine.advance(windows, Instant(0, due_us - 1))]
    assert [pane.value for pane in machine.advance(windows, Instant(0, due_us))] == [[1]]


def overlapping() -> list[WindowedValue]:
    return [
        WindowedValue("alice", Timestamp(19), (IntervalWindow(0, 20),)),
        WindowedValue("bob", Timestamp(29), (IntervalWindow(15, 30),)),
    ]


@pytest.mark.parametrize("kind", [WindowGrouping, PaneGrouping])
@pytest.mark.parametrize(
    ("status", "panes"),
    [
        (
            beam_runner_api_pb2.MergeStatus.ALREADY_MERGED,
            [(["alice"], IntervalWindow(0, 20)), (["bob"], IntervalWindow(15, 30))],
        ),
        (
            beam_runner_api_pb2.MergeStatus.NEEDS_MERGE,
            [(["alice", "bob"], IntervalWindow(0, 30))],
        ),
    ],
)
def test_windows_that_are_merged_already_stay_as_they_are(
    kind: Any, status: int, panes: list[tuple[list[str], IntervalWindow]]
) -> None:
    proto = strategy_proto(Sessions(10))
    proto.merge_status = status
    grouping: Grouping = kind(decode_strategy(proto.SerializeToString()))
    found = grouping.panes("key", overlapping())
    assert [(pane.value[1], pane.windows[0]) for pane in found] == panes


@pytest.mark.parametrize(
    ("behavior", "values"),
    [
        (beam_runner_api_pb2.OnTimeBehavior.FIRE_IF_NONEMPTY, [[1]]),
        (beam_runner_api_pb2.OnTimeBehavior.FIRE_ALWAYS, [[1], []]),
        (beam_runner_api_pb2.OnTimeBehavior.UNSPECIFIED, [[1], []]),
    ],
)
def test_whether_there_is_an_empty_pane_on_time(behavior: int, values: list[list[int]]) -> None:
    proto = strategy_proto(FixedWindows(10))
    early = _Trigger(element_count=_Trigger.ElementCount(element_count=1))
    proto.trigger.CopyFrom(
        _Trigger(after_end_of_window=_Trigger.AfterEndOfWindow(early_firings=early))
    )
    proto.accumulation_mode = beam_runner_api_pb2.AccumulationMode.DISCARDING
    proto.on_time_behavior = behavior
    machine = PaneMachine(decode_strategy(proto.SerializeToString()))
    windows: KeyWindows = {}
    value = WindowedValue(1, Timestamp(1), (IntervalWindow(0, 10),))
    panes = [*machine.add(windows, [value], START_OF_TIME)]
    (state,) = windows.values()
    holds = machine.hold_us(state) is not None
    panes += machine.advance(windows, END_OF_TIME)
    assert [pane.value for pane in panes] == values
    assert holds == (len(values) > 1)
