"""Runs a stateful DoFn, key by key, without a stage around it."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam import keyed
from beam_spark_runner.harness.beam.embedded_stage import EmbeddedBundle, EmbeddedStage
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.state.policy import BATCH, KeyPolicy
from tests.compiled import compile_pipeline
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

    def __init__(self, do_fn: beam.DoFn | beam.PTransform, windows: Any = None, *args: Any) -> None:
        step = do_fn if isinstance(do_fn, beam.PTransform) else beam.ParDo(do_fn, *args)

        def build(p: beam.Pipeline) -> None:
            pairs = p | beam.Impulse() | beam.FlatMap(list).with_output_types(tuple[int, Any])
            if windows is not None:
                into = isinstance(windows, beam.WindowInto)
                pairs |= windows if into else beam.WindowInto(windows)
            # A reader of another stage, so that the output leaves this one.
            pairs | "keyed" >> step | beam.Reshuffle() | beam.Map(print)

        plan = compile_pipeline(proto_of(build))
        (id_,) = (id_ for id_, stage in plan.stages.items() if stage.is_keyed)
        self.taken = Taken()
        self.description = describe(plan, id_)
        self.stage = EmbeddedStage("keyed", self.description)
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


class Counts(beam.DoFn):  # type: ignore[misc]
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(self, pair: Any, due: Any = beam.DoFn.TimerParam(DUE)) -> None:
        due.set(Timestamp(pair[1]), dynamic_timer_tag=str(pair[1]))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def count(self) -> None:
        beam.metrics.Metrics.counter("timers", "fired").inc()
