"""Stateful steps on the real SDK, in this process: what is kept while keys come and go."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.portability.api import beam_runner_api_pb2, metrics_pb2
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
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

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.harness.beam import keyed
from beam_spark_runner.harness.beam.stage import EmbeddedBundle, EmbeddedStage
from beam_spark_runner.job.compile import compile_pipeline
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.state.policy import BATCH, KeyPolicy
from tests.stateful import Loops
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

    def __init__(self, do_fn: beam.DoFn, windows: Any = None, *args: Any) -> None:
        def build(p: beam.Pipeline) -> None:
            pairs = p | beam.Impulse() | beam.FlatMap(list).with_output_types(tuple[int, Any])
            if windows is not None:
                into = isinstance(windows, beam.WindowInto)
                pairs |= windows if into else beam.WindowInto(windows)
            # A reader of another stage, so that the output leaves this one.
            pairs | "keyed" >> beam.ParDo(do_fn, *args) | beam.Reshuffle() | beam.Map(print)

        plan = compile_pipeline(proto_of(build))
        (id_,) = (id_ for id_, stage in plan.stages.items() if stage.is_keyed)
        self.taken = Taken()
        self.stage = EmbeddedStage("keyed", describe(plan, id_))
        self.bundle = self.start()

    def start(self, policy: KeyPolicy = BATCH) -> EmbeddedBundle:
        receivers = dict.fromkeys(self.stage.output_coders, self.taken)
        bundle = self.stage.start_bundle(receivers, {}, policy)
        bundle.enter()
        return bundle

    def key(self, key: Any, values: list[Any], windows: Any = GLOBAL, time: float = 0) -> None:
        """All there is of a key."""
        self.push(key, values, windows, time)
        self.bundle.advance_key()

    def push(self, key: Any, values: list[Any], windows: Any = GLOBAL, time: float = 0) -> None:
        pairs = [(key, value) for value in values]
        self.bundle.push(pairs, [WindowedValue(pair, Timestamp(time), windows) for pair in pairs])

    @property
    def operation(self) -> keyed.KeyedParDo:
        (operation,) = self.stage._steps.keyed
        return operation

    @property
    def out(self) -> list[Any]:
        return [each.value for each in self.taken.elements]


@pytest.fixture
def running() -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(do_fn: beam.DoFn, windows: Any = None, *args: Any) -> Running:
        started.append(Running(do_fn, windows, *args))
        return started[-1]

    yield start
    for each in started:
        each.bundle.abort()  # if the test failed: a sampler that runs keeps the process
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
        stage.bundle.advance_key()
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
    assert states.expiry_us.cache_info().currsize == 1
    stage.bundle.finish()
    assert len(stage.out) == 100


class Piles(beam.DoFn):  # type: ignore[misc]
    BAG = BagStateSpec("bag", BytesCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[int, int],
        window: Any = beam.DoFn.WindowParam,
        bag: Any = beam.DoFn.StateParam(BAG),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        bag.add(bytes(pair[1]))
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def at_end(self, bag: Any = beam.DoFn.StateParam(BAG)) -> Iterator[list[int]]:
        yield list(map(len, bag.read()))


def test_long_values_are_handed_to_the_backend_early(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "_MOST_BYTES", 10_000)
    stage = running(Piles())
    held = []
    for _ in range(20):
        stage.push(1, [3_000])
        held.append(stage.operation.states.piled_bytes)
    assert max(held) < 10_000
    assert held.count(0) == 5
    stage.bundle.advance_key()
    stage.key(2, [3_000])
    stage.bundle.finish()
    assert stage.out == [[3_000] * 20, [3_000]]


def test_the_next_bundle_knows_nothing_of_the_last_one(running: Any) -> None:
    stage = running(Everything())
    stage.key(1, [5, 6])
    stage.bundle.finish()
    stage.bundle = stage.start()
    stage.key(1, [7])
    stage.bundle.finish()
    assert stage.out == [(1, 6, 2, 11, 2, [5, 6]), (1, 7, 1, 7, 1, [7])]


class Counts(beam.DoFn):  # type: ignore[misc]
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(self, pair: Any, due: Any = beam.DoFn.TimerParam(DUE)) -> None:
        due.set(Timestamp(pair[1]), dynamic_timer_tag=str(pair[1]))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def count(self) -> None:
        beam.metrics.Metrics.counter("timers", "fired").inc()


@pytest.mark.parametrize(
    ("do_fn", "kind", "name", "asked"),
    [
        (Everything(), "state_specs", "bag", "state 'bag'"),
        (Everything(), "timer_family_specs", "ts-end", "timer 'end'"),
        # The stage is not keyed then.
        (Counts(), "timer_family_specs", "ts-due", "timer 'due'"),
    ],
)
def test_what_the_proto_does_not_declare(
    do_fn: beam.DoFn, kind: str, name: str, asked: str
) -> None:
    """An SDK's mistake, or an old pickle."""

    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Impulse() | beam.FlatMap(list).with_output_types(tuple[int, Any])
        pairs | "keyed" >> beam.ParDo(do_fn)

    proto = proto_of(build)
    (step,) = (each for each in proto.components.transforms.values() if each.unique_name == "keyed")
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    del getattr(payload, kind)[name]
    step.spec.payload = payload.SerializeToString()
    plan = compile_pipeline(proto)
    (id_,) = (
        id_
        for id_, stage in plan.stages.items()
        if any(plan.graph.transforms[each].name == "keyed" for each in stage.transforms)
    )
    with pytest.raises(BundleFailedError, match=f"^keyed: .*asks for the {asked}, which its proto"):
        EmbeddedStage("stage", describe(plan, id_))


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


class Asks(beam.DoFn):  # type: ignore[misc]
    """For all that ``process`` may be given."""

    SEEN = CombiningValueStateSpec("seen", sum)
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        pair: Any,
        given: str,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        time: Any = beam.DoFn.TimestampParam,
        whole: Any = beam.DoFn.WindowedValueParam,
        pane: Any = beam.DoFn.PaneInfoParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        due: Any = beam.DoFn.TimerParam(DUE),
        default: str = "default",
    ) -> Iterator[Any]:
        assert (whole.value, whole.windows, whole.timestamp) == (pair, (window,), time)
        assert whole.pane_info == pane
        seen.add(1)
        due.set(window.end, dynamic_timer_tag=str(pair[1]))
        yield pair, given, key, float(window.start), float(time), seen.read(), default

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def fire(self, seen: Any = beam.DoFn.StateParam(SEEN)) -> Iterator[int]:
        yield seen.read()


ENTERED = beam.DoFn.BundleContextParam(lambda: contextlib.nullcontext("entered"))


class AsksForMore(Asks):
    """For what only Beam's invoker knows, too."""

    def process(
        self,
        pair: Any,
        given: str,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        time: Any = beam.DoFn.TimestampParam,
        whole: Any = beam.DoFn.WindowedValueParam,
        pane: Any = beam.DoFn.PaneInfoParam,
        seen: Any = beam.DoFn.StateParam(Asks.SEEN),
        due: Any = beam.DoFn.TimerParam(Asks.DUE),
        entered: Any = ENTERED,
    ) -> Iterator[Any]:
        assert entered == "entered"
        yield from super().process(pair, given, key, window, time, whole, pane, seen, due)


@pytest.mark.parametrize("do_fn", [Asks, AsksForMore])
def test_what_process_is_given(running: Any, do_fn: Any) -> None:
    stage = running(do_fn(), SlidingWindows(10, 5), "given")
    assert (stage.operation._make_call is None) == (do_fn is AsksForMore)
    early, late = IntervalWindow(0, 10), IntervalWindow(5, 15)
    stage.push(1, [7], (early,), time=2)
    stage.push(1, [8, 9], (early, late), time=6)
    stage.bundle.advance_key()
    stage.key(2, [7], (late,), time=11)
    stage.bundle.finish()
    rest = "default"
    assert stage.out == [
        ((1, 7), "given", 1, 0.0, 2.0, 1, rest),
        ((1, 8), "given", 1, 0.0, 6.0, 2, rest),
        ((1, 8), "given", 1, 5.0, 6.0, 1, rest),
        ((1, 9), "given", 1, 0.0, 6.0, 3, rest),
        ((1, 9), "given", 1, 5.0, 6.0, 2, rest),
        *[3, 3, 3, 2, 2],
        ((2, 7), "given", 2, 5.0, 11.0, 1, rest),
        1,
    ]


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


class Largest(beam.DoFn):  # type: ignore[misc]
    """Reads between what it adds: Beam's own CombineFn reorders its accumulator then."""

    TOP = CombiningValueStateSpec("top", beam.combiners.TopCombineFn(2))

    def process(self, pair: Any, top: Any = beam.DoFn.StateParam(TOP)) -> Iterator[list[int]]:
        top.add(pair[1])
        yield list(top.read())


def test_a_combiner_is_read_between_two_inputs(running: Any) -> None:
    stage = running(Largest())
    stage.key(1, [5, 9, 7, 8, 1])
    stage.key(2, [1])
    stage.bundle.finish()
    assert stage.out == [[5], [9, 5], [9, 7], [9, 8], [9, 8], [1]]


class Text(beam.DoFn):  # type: ignore[misc]
    SEEN = BagStateSpec("seen", VarIntCoder())

    def process(self, pair: Any, seen: Any = beam.DoFn.StateParam(SEEN)) -> Any:
        return "text"


def test_text_is_no_result(running: Any) -> None:
    stage = running(Text())
    with pytest.raises(BundleFailedError, match="keyed: TypeError: Returning a str"):
        stage.push(1, [1])
    stage.bundle.abort()
