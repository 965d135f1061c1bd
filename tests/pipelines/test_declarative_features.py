"""Inputs, outputs, timers and windows of declarative steps, here and on Beam's own runner."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.pvalue import AsDict, AsSingleton
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode, AfterWatermark
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.transforms import (
    BagState,
    DeclarationContext,
    DeclarativeKeyedProcess,
    EventTimer,
    FiredTimer,
    KeyedProcess,
    ProcessingTimer,
    ValueState,
)
from tests.harvest import RARE_HARNESSES, REUSED_PROCESS, Harvest, harvest, harvest_on, run

Build = Callable[[beam.Pipeline], dict[str, Any]]
RUNNERS = ["in process", "FnApiRunner", pytest.param("process", marks=pytest.mark.rare)]


@pytest.fixture(params=RUNNERS)
def run_on(request: pytest.FixtureRequest, spark_session: Any) -> Callable[[Build], Harvest]:
    def run_it(build: Build) -> Harvest:
        if request.param == "FnApiRunner":
            return harvest_on("FnApiRunner", build)
        flags = REUSED_PROCESS if request.param == "process" else ()
        return harvest(spark_session, build, *flags)

    return run_it


def pairs_of(p: beam.Pipeline, pairs: list[tuple[Any, Any]], value: Any, label: str = "") -> Any:
    """Return pairs in one bundle, at 1 s."""
    each = beam.FlatMap(lambda pairs: [TimestampedValue(pair, 1) for pair in pairs])
    made = p | f"Create{label}" >> beam.Create([pairs], reshuffle=False)
    return made | f"Each{label}" >> each.with_output_types(tuple[str, value])


class Join(KeyedProcess):
    """Joins orders with the name of their customer, whichever comes first."""

    name = ValueState("name", StrUtf8Coder())
    waiting = BagState("waiting", VarIntCoder())

    def declare_process1(self, ctx: DeclarationContext) -> Any:
        emit = ctx.declare("emit", lambda name: ctx.output((ctx.value, name)))
        wait = ctx.declare("wait", lambda _: self.waiting.add(ctx.value))
        known = ctx.declare("known", lambda name: name is not None)
        return lambda _: self.name.read().then_conditionally_accept(known, emit, wait)

    def declare_process2(self, ctx: DeclarationContext) -> Any:
        def emit_all(orders: Any) -> None:
            for order in orders:
                ctx.output((order, ctx.value))

        return (
            ctx.declare_chain(lambda element: self.name.write(element[1]))
            .then_compose(lambda _: self.waiting.read())
            .then_accept(emit_all)
            .with_name("emit all")
            .then_compose(lambda _: self.waiting.clear())
            .finish()
        )


def test_two_collections(run_on: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        orders = pairs_of(p, [("a", 1), ("a", 2), ("b", 3), ("c", 4)], int, " orders")
        names = pairs_of(p, [("a", "Ann"), ("b", "Bob"), ("d", "Dan")], str, " names")
        return {"joined": (orders, names) | DeclarativeKeyedProcess(Join())}

    assert run_on(build)["joined"] == [(1, "Ann"), (2, "Ann"), (3, "Bob")]


SIDE_INPUT = "timestamp"
"""The name of a side input, which a parameter of the step's DoFn has, too."""


class Outputs(KeyedProcess):
    """Emits with a side input, with tags and timestamps; has no state."""

    def process(self, ctx: DeclarationContext, element: tuple[str, int]) -> None:
        name = ctx.side_inputs["names"].get(ctx.key, "nobody")
        ctx.output(
            (name, ctx.value + ctx.side_inputs[SIDE_INPUT], ctx.timestamp.micros // 1_000_000)
        )
        ctx.output(element, "late", timestamp=3)
        ctx.output((str(ctx.window), ctx.pane.is_first), tag="where")


def test_tags_timestamps_and_side_inputs(run_on: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        names = AsDict(p | "names" >> beam.Create([("a", "Ann")]))
        more = AsSingleton(p | "more" >> beam.Create([10]))
        pairs = pairs_of(p, [("a", 1), ("b", 2)], int) | beam.WindowInto(FixedWindows(5))
        step = DeclarativeKeyedProcess(Outputs(), side_inputs={"names": names, SIDE_INPUT: more})
        made = pairs | step.with_outputs("late", "where", main="main")
        main, late, where = made
        assert (made.main, made["late"]) == (main, late)
        only = pairs | "only" >> step.with_outputs("late", "where").with_output_types(
            tuple[str, int, int], late=tuple[str, int]
        )
        assert only.late.element_type == beam.typehints.Tuple[str, int]
        return {"main": main, "late": late, "where": where, "only": only.late}

    found = run_on(build)
    assert found["main"] == [("Ann", 11, 1), ("nobody", 12, 1)]
    assert found.timed("main") == [(("Ann", 11, 1), 1.0), (("nobody", 12, 1), 1.0)]
    assert found.timed("late") == found.timed("only") == [(("a", 1), 3.0), (("b", 2), 3.0)]
    assert {each.window.end for each in found.kept["late"]} == {Timestamp(5)}
    assert found["where"] == [("[0.0, 5.0)", True)] * 2


class Timers(KeyedProcess):
    """Says what happens, and when."""

    count = ValueState("count", VarIntCoder())
    end, other = EventTimer("end"), EventTimer("other")
    poll = ProcessingTimer("poll")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def add(count: int | None) -> Any:
            return self.count.write((count or 0) + ctx.value)

        def element(_: Any) -> Any:
            self.end.set(Timestamp(2), tag="first")
            self.end.set(3, tag="second")
            self.end.set(3, tag="third")
            self.end.clear("third")
            self.other.set(4)
            self.poll.set(Timestamp.now())
            return self.count.read().then_compose(add)

        return element

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        def say(timer: FiredTimer) -> Any:
            at = timer.timestamp.micros // 1_000_000
            assert ctx.timestamp == timer.timestamp
            return self.count.read().then_accept(
                lambda count: ctx.output((ctx.key, timer.name, timer.tag, at, count))
            )

        return say

    def declare_on_processing_time(self, ctx: DeclarationContext) -> Any:
        return lambda timer: ctx.output((ctx.key, timer.name, timer.tag, 0, 0), timestamp=1)

    def declare_on_window_expiration(self, ctx: DeclarationContext) -> Any:
        return lambda window: self.count.read().then_accept(
            lambda count: ctx.output((ctx.key, "window", str(window), 0, count))
        )


def of_timers(key: str, count: int) -> list[Any]:
    return [
        (key, "end", "first", 2, count),
        (key, "end", "second", 3, count),
        (key, "other", "", 4, count),
        (key, "poll", "", 0, 0),
        (key, "window", "[0.0, 5.0)", 0, count),
    ]


def test_timers_and_the_end_of_windows(run_on: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = pairs_of(p, [("a", 1), ("a", 2), ("b", 5)], int)
        return {
            "fired": pairs | beam.WindowInto(FixedWindows(5)) | DeclarativeKeyedProcess(Timers())
        }

    found = run_on(build)
    assert found["fired"] == of_timers("a", 3) + of_timers("b", 5)
    assert {each.window.end for each in found.kept["fired"]} == {Timestamp(5)}
    ends = {each.timestamp for each in found.kept["fired"] if each.value[1] == "window"}
    assert ends == {Timestamp(5) - Duration(micros=1_000)}  # in the window, on all runners


def test_windows_end_late_in_epochs(spark_session: Any) -> None:
    """State is there until the window expires; a late element of an expired one is dropped."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().advance_watermark_to(0)
        for watermark, value in ((6, 1), (9, 2), (20, 4)):
            events.add_elements([TimestampedValue(("a", value), 1)])
            events.advance_watermark_to(watermark)
        events.add_elements([TimestampedValue(("a", 8), 1)])
        each = beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        pairs = p | events.advance_watermark_to_infinity() | each
        windows = beam.WindowInto(
            FixedWindows(5),
            allowed_lateness=10,
            trigger=AfterWatermark(),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        return {"fired": pairs | windows | DeclarativeKeyedProcess(Timers())}

    found = harvest(spark_session, build, "--streaming")
    ends = [each for each in found["fired"] if each[1] == "window"]
    assert ends == [("a", "window", "[0.0, 5.0)", 0, 7)]


class Life(KeyedProcess):
    """Uses what ``__init__`` and ``setup`` have made."""

    count = ValueState("count", VarIntCoder())

    def __init__(self, factor: int) -> None:
        self._factor = factor

    def setup(self) -> None:
        self._more = [self._factor]

    def declare_process(self, ctx: DeclarationContext) -> Any:
        multiply = ctx.declare(f"times {self._factor}", lambda n: n * self._factor + self._more[0])
        return (
            ctx.declare_chain(lambda pair: ctx.completed(pair[1]))
            .then_apply(multiply)
            .then_accept(ctx.output)
            .finish()
        )

    def teardown(self) -> None:
        del self._more


def test_setup_and_teardown(run_on: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"made": pairs_of(p, [("a", 1)], int) | DeclarativeKeyedProcess(Life(5))}

    assert run_on(build)["made"] == [10]


class Fails(KeyedProcess):
    """Fails in a callback."""

    count = ValueState("count", VarIntCoder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        divide = ctx.declare("divide", lambda _: 1 // ctx.value)
        return lambda _: self.count.read().then_apply(divide)


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_an_exception_has_its_cause_step_callback_and_element(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> Any:
        return pairs_of(p, [("a", 1), ("b", 0)], int) | "Mine" >> DeclarativeKeyedProcess(Fails())

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, build, *flags)
    assert raised.value.step.startswith("Mine")
    text = str(raised.value)
    assert "ZeroDivisionError" in text
    assert "in the callback 'divide'" in text
    if flags == REUSED_PROCESS or not flags:
        assert isinstance(raised.value, ZeroDivisionError)
        assert "Element: ('b', 0)" in text
    assert "test_declarative_features.py" in text


class FailsInBoth(KeyedProcess):
    """Fails for one element of each of two collections."""

    count = ValueState("count", VarIntCoder())

    def declare_process1(self, ctx: DeclarationContext) -> Any:
        divide = ctx.declare("divide", lambda _: 1 // ctx.value)
        return lambda _: self.count.read().then_apply(divide)

    def declare_process2(self, ctx: DeclarationContext) -> Any:
        return lambda element: self.count.read().then_accept(lambda _: element[1].index("x"))


@pytest.mark.parametrize("flags", RARE_HARNESSES[:2])
@pytest.mark.parametrize(
    ("number", "text", "element"), [(0, "fine x", ("b", 0)), (1, "no", ("b", "no"))]
)
def test_an_exception_has_the_element_of_one_of_two_collections(
    spark_session: Any, flags: tuple[str, ...], number: int, text: str, element: Any
) -> None:
    def build(p: beam.Pipeline) -> Any:
        numbers = pairs_of(p, [("a", 1), ("b", number)], int, " numbers")
        texts = pairs_of(p, [("a", "ax"), ("b", text)], str, " texts")
        return (numbers, texts) | "Mine" >> DeclarativeKeyedProcess(FailsInBoth())

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, build, *flags)
    assert f"Element: {element}\n" in str(raised.value)


class Misspelt(KeyedProcess):
    """Emits to an output that there is not."""

    def process(self, ctx: DeclarationContext, element: tuple[str, int]) -> None:
        ctx.output(element, "lat")


@pytest.mark.parametrize("tags", [(), ("late", "where")])
def test_an_unknown_tag_is_an_error_with_step_and_tags(run_on: Any, tags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        step = DeclarativeKeyedProcess(Misspelt()).with_outputs(*tags, main="main")
        made = pairs_of(p, [("a", 1)], int) | "Mine" >> step
        return {"main": made.main if tags else made}

    with pytest.raises(Exception, match="there is no output with the tag 'lat'") as raised:
        run_on(build)
    known = ", ".join(map(repr, tags)) or "no tags"
    assert f"DeclarativeKeyedProcess names {known}; " in str(raised.value)
    assert "[while running 'Mine" in str(raised.value)


class Wrong(KeyedProcess):
    """Asks for what timers do not have."""

    end = EventTimer("end")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        return lambda _: self.end.set(2)

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        return lambda _: ctx.output(ctx.value)


def test_timers_have_no_value(spark_session: Any) -> None:
    with pytest.raises(RuntimeError, match=r"the timer 'end' has no ctx\.value"):
        run(
            spark_session, lambda p: pairs_of(p, [("a", 1)], int) | DeclarativeKeyedProcess(Wrong())
        )
