"""Timers of the embedded stage."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.portability.api import metrics_pb2
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.userstate import (
    CombiningValueStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, WindowedValue

from beam_spark_runner.semantics import timer_loops
from beam_spark_runner.semantics.timer_loops import TimerLoops
from beam_spark_runner.state.policy import BATCH
from tests.stateful import Loops
from tests.unit.harness.beam.keyed import GLOBAL, Counts


class Timers(beam.DoFn):  # type: ignore[misc]
    """What timers of both domains get when they fire."""

    EVENT = TimerSpec("event", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[int, Any],
        event: Any = beam.DoFn.TimerParam(EVENT),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
    ) -> None:
        event.set(pair[1])
        clock.set(Timestamp(1_000_000))

    @on_timer(EVENT)  # type: ignore[untyped-decorator]
    def on_event(
        self,
        key: Any = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterator[Any]:
        yield "event", key, float(time), window

    @on_timer(CLOCK)  # type: ignore[untyped-decorator]
    def on_clock(
        self, key: Any = beam.DoFn.KeyParam, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        yield "clock", key, window


def test_what_a_callback_is_told(running: Any) -> None:
    stage = running(Timers(), FixedWindows(100))
    window = IntervalWindow(0, 100)
    stage.key(1, [50, 30], (window,), time=7)
    stage.bundle.finish()
    assert stage.out == [("event", 1, 30.0, window), ("clock", 1, window)]
    assert stage.taken.elements[0].timestamp == Timestamp(30)
    assert {each.windows for each in stage.taken.elements} == {(window,)}


class LastSetting(beam.DoFn):  # type: ignore[misc]
    """Which element a timer belongs to that each of several elements sets for the same time."""

    EVENT = TimerSpec("event", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)
    LATER = Timestamp(1_000_000)

    def process(
        self,
        pair: tuple[int, Any],
        window: Any = beam.DoFn.WindowParam,
        event: Any = beam.DoFn.TimerParam(EVENT),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
    ) -> None:
        event.set(window.end)
        clock.set(self.LATER)

    @on_timer(EVENT)  # type: ignore[untyped-decorator]
    def on_event(self) -> None:
        pass

    @on_timer(CLOCK)  # type: ignore[untyped-decorator]
    def on_clock(self) -> None:
        pass


@pytest.mark.parametrize("indexes", [(0, 0), (0, 1), (1, 0)])
def test_a_timer_belongs_to_the_element_that_has_set_it_last(
    running: Any, indexes: tuple[int, int]
) -> None:
    stage = running(LastSetting(), FixedWindows(100))
    windows = (IntervalWindow(0, 100),)
    pairs = [(1, "a"), (1, "b")]
    panes = [PaneInfo(False, False, 0, index, 0) for index in range(2)]
    origins = [
        WindowedValue(pair, Timestamp(time), windows, panes[index])
        for pair, time, index in zip(pairs, (7, 5), indexes, strict=True)
    ]
    stage.bundle.push(pairs, origins)
    event, clock = stage.operation.states.timers.remaining()
    assert (event.hold_us, event.payload[1].index) == (100_000_000, indexes[1])
    assert (clock.hold_us, clock.payload[1].index) == (5_000_000, indexes[1])


class AtEnd(beam.DoFn):  # type: ignore[misc]
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, Any],
        window: Any = beam.DoFn.WindowParam,
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def on_end(self) -> None:
        pass


def test_a_timer_that_is_set_through_several_objects_belongs_to_the_last_element(
    running: Any,
) -> None:
    """Windows may be equal without being the same object: then each has a timer object."""
    stage = running(AtEnd(), FixedWindows(100))
    windows = [(IntervalWindow(0, 100),) for _ in range(2)]
    panes = [PaneInfo(False, False, 0, index, 0) for index in range(2)]
    other = WindowedValue((1, "a"), Timestamp(7), (IntervalWindow(100, 200),), panes[0])
    for index in (0, 1, 0):
        origin = WindowedValue((1, "a"), Timestamp(7), windows[index], panes[index])
        stage.bundle.push([(1, "a")] * 2, [other, origin])
    _, end = stage.operation.states.timers.remaining()
    assert (end.id.window, end.payload[1].index) == (windows[0][0], 0)


class SetsGiven(beam.DoFn):  # type: ignore[misc]
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(self, pair: tuple[int, Any], due: Any = beam.DoFn.TimerParam(DUE)) -> None:
        if pair[1] is not None:
            due.set(pair[1])

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def on_due(self) -> Iterator[str]:
        yield "fired"


@pytest.mark.parametrize("is_same", [True, False], ids=["the same window", "an equal one"])
def test_a_timer_is_set_again_after_another_object_has_dropped_it(
    running: Any, is_same: bool
) -> None:
    """One that is set past the end of a window that is over is dropped, with what it replaces."""
    stage = running(SetsGiven(), FixedWindows(60))
    over, other = IntervalWindow(0, 60), IntervalWindow(60, 120)
    equal = over if is_same else IntervalWindow(0, 60)
    stage.push(1, [Timestamp(65)], (other,), 65)
    stage.bundle.fire_until(70_000_000)
    stage.taken.elements.clear()
    soon, too_late = Timestamp(5), Timestamp(80)
    for value, window in [(soon, over), (None, other), (too_late, equal), (None, other)]:
        stage.push(1, [value], (window,), 70)
    stage.push(1, [soon], (over,), 70)
    stage.bundle.advance_key()
    assert stage.out == ["fired"]


def test_metrics_of_callbacks_are_charged_to_their_step(running: Any) -> None:
    stage = running(Counts())
    stage.key(1, [50, 30, 50])
    coded = stage.bundle.finish().monitoring_infos
    infos = map(metrics_pb2.MonitoringInfo.FromString, coded)
    (fired,) = (info for info in infos if info.labels.get("NAME") == "fired")
    assert fired.payload == VarIntCoder().encode(2)
    assert fired.labels["PTRANSFORM"] == stage.operation.name_context.transform_id


@pytest.mark.parametrize(
    ("allowed_lateness", "times"), [(0, [3, 7, 10]), (5, [3, 7, 11, 15]), (6, [3, 7, 11, 15, 16])]
)
def test_state_and_timers_live_as_long_as_their_window(
    running: Any, allowed_lateness: int, times: list[float]
) -> None:
    windows = beam.WindowInto(
        FixedWindows(10),
        trigger=AfterWatermark(late=AfterCount(1)),
        accumulation_mode=AccumulationMode.DISCARDING,
        allowed_lateness=allowed_lateness,
    )
    bundle = running(Loops(), windows)
    for _ in range(2):  # nothing is left for the same key and window
        bundle.key(1, [3.0], (IntervalWindow(0, 10),))
    assert bundle.out == 2 * [(time, number) for number, time in enumerate(times, 1)]


class Toggles(beam.DoFn):  # type: ignore[misc]
    """Sets one timer by what its elements say."""

    DUE = TimerSpec("due", TimeDomain.WATERMARK)
    TIMES = {1: Timestamp(1), 2: Timestamp(2)}  # noqa: RUF012

    def process(self, pair: Any, due: Any = beam.DoFn.TimerParam(DUE)) -> None:
        for act in pair[1]:
            due.set(self.TIMES[act]) if act else due.clear()

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def fire(self, time: Any = beam.DoFn.TimestampParam) -> Iterator[float]:
        yield float(time)


@pytest.mark.parametrize(
    ("acts", "fired"),
    [
        ([[1, 1], [1]], [1.0]),
        ([[1, 0]], []),
        ([[1, 0, 1]], [1.0]),
        ([[1], [0], [1]], [1.0]),
        ([[1, 2, 1]], [1.0]),
        ([[1], [2]], [2.0]),
        ([[1], [0]], []),
    ],
)
@pytest.mark.parametrize("shares_origin", [False, True])
def test_the_last_setting_counts(
    running: Any, acts: list[list[int]], fired: list[float], shares_origin: bool
) -> None:
    stage = running(Toggles())
    pairs = [(1, act) for act in acts]
    origins = [WindowedValue(pair, Timestamp(0), GLOBAL) for pair in pairs]
    if shares_origin:
        origins = origins[:1] * len(pairs)
    for _ in range(2):
        stage.bundle.push(pairs, origins)
        stage.bundle.advance_key()
    stage.bundle.finish()
    assert stage.out == fired * 2


def test_timers_that_set_themselves_again_at_the_end_of_time_are_counted(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_loops, "MAX_SET_AGAIN", 20)
    monkeypatch.setattr(timer_loops, "PATIENCE_US", 0)
    said: list[str] = []
    stage = running(Loops(), FixedWindows(100))
    stage.bundle = stage.start(
        dataclasses.replace(BATCH, loops=TimerLoops(lambda: 0, said.append, float))
    )
    stage.key(1, [30], (IntervalWindow(0, 100),))
    assert said == []
    stage.key(2, [0], (IntervalWindow(0, 100),))
    assert said == ["ts-each"]


class Polls(beam.DoFn):  # type: ignore[misc]
    """Looks as often as the element says."""

    LOOK = TimerSpec("look", TimeDomain.REAL_TIME)
    LEFT = CombiningValueStateSpec("left", sum)

    def process(
        self,
        pair: tuple[int, int],
        look: Any = beam.DoFn.TimerParam(LOOK),
        left: Any = beam.DoFn.StateParam(LEFT),
    ) -> None:
        left.add(pair[1])
        look.set(Timestamp(1))

    @on_timer(LOOK)  # type: ignore[untyped-decorator]
    def look_again(
        self,
        look: Any = beam.DoFn.TimerParam(LOOK),
        left: Any = beam.DoFn.StateParam(LEFT),
    ) -> None:
        left.add(-1)
        if left.read():
            look.set(Timestamp(1))


def test_timers_that_poll_leave_the_processor_to_others_and_are_counted(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timer_loops, "MAX_SET_AGAIN", 4)
    monkeypatch.setattr(timer_loops, "PATIENCE_US", 0)
    said: list[str] = []
    pauses_s: list[float] = []
    stage = running(Polls())
    stage.bundle = stage.start(
        dataclasses.replace(BATCH, loops=TimerLoops(lambda: 0, said.append, pauses_s.append))
    )
    stage.key(1, [4])
    assert (len(pauses_s), said) == (3, [])
    stage.key(2, [6])
    assert (len(pauses_s), said) == (3 + 5, ["ts-look"])
    assert pauses_s[:3] == sorted(pauses_s[:3])
