"""Stateful steps on the real SDK, in this process: what is kept while keys come and go."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.portability.api import metrics_pb2
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    OrderedListStateSpec,
    ReadModifyWriteStateSpec,
    SetStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import FixedWindows, GlobalWindow, IntervalWindow, SlidingWindows
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.harness import keyed
from beam_spark_runner.harness.embedded import EmbeddedBundle, EmbeddedStage
from beam_spark_runner.job.compile import compile_pipeline
from beam_spark_runner.portable.descriptor import describe
from tests.unit.portable.pipelines import proto_of

GLOBAL = (GlobalWindow(),)


class Taken:
    """A receiver."""

    def __init__(self) -> None:
        self.elements: list[WindowedValue] = []

    def accept(self, windowed_value: WindowedValue) -> None:
        self.elements.append(windowed_value)

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        for value, origin in zip(values, origins, strict=True):
            self.accept(origin.with_value(value))


class Running:
    """A bundle of the only keyed stage of a pipeline."""

    def __init__(self, do_fn: beam.DoFn, windows: Any = None) -> None:
        def build(p: beam.Pipeline) -> None:
            pairs = p | beam.Impulse() | beam.FlatMap(list).with_output_types(tuple[int, Any])
            if windows is not None:
                pairs |= beam.WindowInto(windows)
            # A reader of another stage, so that the output leaves this one.
            pairs | "keyed" >> beam.ParDo(do_fn) | beam.Reshuffle() | beam.Map(print)

        plan = compile_pipeline(proto_of(build))
        (id_,) = (id_ for id_, stage in plan.stages.items() if stage.is_keyed)
        self.taken = Taken()
        self.stage = EmbeddedStage("keyed", describe(plan, id_))
        self.bundle = self.start()

    def start(self) -> EmbeddedBundle:
        receivers = dict.fromkeys(self.stage.output_coders, self.taken)
        bundle = self.stage.start_bundle(receivers, {})
        bundle.enter()
        return bundle

    def key(self, key: Any, values: list[Any], windows: Any = GLOBAL, time: float = 0) -> None:
        """All there is of a key."""
        self.push(key, values, windows, time)
        self.bundle.end_key()

    def push(self, key: Any, values: list[Any], windows: Any = GLOBAL, time: float = 0) -> None:
        pairs = [(key, value) for value in values]
        self.bundle.push(pairs, [WindowedValue(pair, Timestamp(time), windows) for pair in pairs])

    @property
    def operation(self) -> keyed.KeyedParDo:
        (operation,) = self.stage._keyed
        return operation

    @property
    def out(self) -> list[Any]:
        return [each.value for each in self.taken.elements]


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(do_fn: beam.DoFn, windows: Any = None) -> Running:
        started.append(Running(do_fn, windows))
        return started[-1]

    yield start
    for each in started:
        each.stage.close()


class Everything(beam.DoFn):  # type: ignore[misc]
    VALUE = ReadModifyWriteStateSpec("value", VarIntCoder())
    BAG = BagStateSpec("bag", BytesCoder())
    SUM = CombiningValueStateSpec("sum", sum)
    SET = SetStateSpec("set", VarIntCoder())
    LIST = OrderedListStateSpec("list", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, int],
        window: Any = beam.DoFn.WindowParam,
        value: Any = beam.DoFn.StateParam(VALUE),
        bag: Any = beam.DoFn.StateParam(BAG),
        total: Any = beam.DoFn.StateParam(SUM),
        a_set: Any = beam.DoFn.StateParam(SET),
        a_list: Any = beam.DoFn.StateParam(LIST),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        value.write(pair[1])
        bag.add(bytes(10))
        total.add(pair[1])
        a_set.add(pair[1])
        a_list.add((Timestamp(pair[1]), pair[1]))
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def at_end(
        self,
        key: Any = beam.DoFn.KeyParam,
        value: Any = beam.DoFn.StateParam(VALUE),
        bag: Any = beam.DoFn.StateParam(BAG),
        total: Any = beam.DoFn.StateParam(SUM),
        a_set: Any = beam.DoFn.StateParam(SET),
        a_list: Any = beam.DoFn.StateParam(LIST),
    ) -> Iterator[Any]:
        yield (
            key,
            value.read(),
            len(list(bag.read())),
            total.read(),
            len(a_set.read()),
            [number for _, number in a_list.read()],
        )


@pytest.mark.parametrize("most_calls", [8192, 1, 2], ids=["never", "each time", "sometimes"])
def test_state_reads_as_written_however_often_it_is_handed_to_the_backend(
    running: Any, monkeypatch: pytest.MonkeyPatch, most_calls: int
) -> None:
    monkeypatch.setattr(keyed, "_MOST_CALLS", most_calls)
    stage = running(Everything(), SlidingWindows(10, 5))
    windows = (IntervalWindow(0, 10), IntervalWindow(5, 15))
    for key in range(3):
        for number in (3, 1, 2):
            stage.push(key, [number], windows)
        stage.bundle.end_key()
    stage.bundle.finish()
    expected = [(key, 2, 3, 6, 3, [1, 2, 3]) for key in range(3) for _ in windows]
    assert stage.out == expected
    assert [each.windows for each in stage.taken.elements[:2]] == [(each,) for each in windows]


def test_nothing_is_left_of_a_key(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "_MOST_CALLS", 5)
    stage = running(Everything())
    states, handler = stage.operation.states, stage.stage._state
    for key in range(100):
        stage.key(key, list(range(7)))
        assert not states._all_states
        assert not len(states.timers)
        assert not handler._written
        assert not handler._backend._keys
    assert len(states._expiries) == 1
    stage.bundle.finish()
    assert len(stage.out) == 100


def test_the_next_bundle_knows_nothing_of_the_last_one(running: Any) -> None:
    stage = running(Everything())
    stage.key(1, [5, 6])
    stage.bundle.finish()
    stage.bundle = stage.start()
    stage.key(1, [7])
    stage.bundle.finish()
    assert stage.out == [(1, 6, 2, 11, 2, [5, 6]), (1, 7, 1, 7, 1, [7])]


class Undeclared(beam.DoFn):  # type: ignore[misc]
    """Asks for a state that its proto does not have: an SDK's mistake, or an old pickle."""

    SEEN = BagStateSpec("seen", VarIntCoder())

    def process(self, pair: Any, seen: Any = beam.DoFn.StateParam(SEEN)) -> None:
        seen._state_key.bag_user_state.user_state_id = "unseen"
        list(seen.read())


def test_a_state_that_is_not_declared(running: Any) -> None:
    stage = running(Undeclared())
    with pytest.raises((FnApiProtocolError, RuntimeError), match=r"keyed: .*'unseen'"):
        stage.push(1, [1])
    stage.bundle.abort()


class Timers(beam.DoFn):  # type: ignore[misc]
    """What timers of both domains are told when they fire."""

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


class Counts(beam.DoFn):  # type: ignore[misc]
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(self, pair: Any, due: Any = beam.DoFn.TimerParam(DUE)) -> None:
        due.set(Timestamp(pair[1]), dynamic_timer_tag=str(pair[1]))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def count(self) -> None:
        beam.metrics.Metrics.counter("timers", "fired").inc()


def test_metrics_of_callbacks_are_charged_to_their_step(running: Any) -> None:
    stage = running(Counts())
    stage.key(1, [50, 30, 50])
    coded = stage.bundle.finish().monitoring_infos
    infos = map(metrics_pb2.MonitoringInfo.FromString, coded)
    (fired,) = (info for info in infos if info.labels.get("NAME") == "fired")
    assert fired.payload == VarIntCoder().encode(2)
    assert fired.labels["PTRANSFORM"] == stage.operation.name_context.transform_id
