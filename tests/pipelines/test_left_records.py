"""What waits in declarative steps is left for the next epoch, or is not; with a Redis server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.pvalue import AsSingleton
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.urns import DECLARATIVE_KEYED_PROCESS
from beam_spark_runner.engine.stages import opening
from beam_spark_runner.harness.beam.declarative import DeclarativeParDo
from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarativeKeyedProcess,
    KeyedProcess,
    MapState,
)
from tests.declared import Lookups
from tests.harvest import harvest, harvest_on
from tests.state_store.servers import RedisServer, redis_server

FLAG = "--unaligned_state_requests"
KEYS = 15
STEP = "Step"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as here:
        yield here


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have steps that may leave records do it at once; returns how many each bundle has left."""
    may_leave_after = opening._leaves_after_us
    monkeypatch.setattr(
        opening,
        "_leaves_after_us",
        lambda context: None if may_leave_after(context) is None else 0,
    )
    counts: list[int] = []
    settle = DeclarativeParDo.settle

    def counted(step: DeclarativeParDo) -> Any:
        settled = settle(step)
        counts.append(len(settled.left))
        return settled

    monkeypatch.setattr(DeclarativeParDo, "settle", counted)
    return counts


def pairs_of(p: beam.Pipeline, values: tuple[int, ...]) -> Any:
    """Return pairs of all keys, those of each value in an epoch."""
    events = Stream()
    for time, value in enumerate(values):
        events.add_elements([TimestampedValue((f"{key}", value), time) for key in range(KEYS)])
        events.advance_watermark_to(time + 1)
    played = p | events.advance_watermark_to_infinity()
    return played | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])


def lookups(p: beam.Pipeline) -> dict[str, Any]:
    return {"found": pairs_of(p, (-60, 50, 7)) | STEP >> DeclarativeKeyedProcess(Lookups())}


EXPECTED = sorted((f"{key}", value, 100) for key in range(KEYS) for value in (7, 50))


@pytest.mark.parametrize("flags", [(), (FLAG,)], ids=["without the option", "with it"])
def test_only_with_the_option_anything_is_left(
    flags: tuple[str, ...], server: RedisServer, spark_session: Any, left: list[int]
) -> None:
    found = harvest(spark_session, lookups, f"--state_store={server.url}", *flags)
    assert sorted(found["found"]) == EXPECTED
    assert left
    assert any(left) is bool(flags)


class AskingDeclared(SparkPortableRunner):
    """Runs pipelines whose declarative step asks for stable input, or for input in order."""

    def __init__(self, spark: Any, what: str) -> None:
        super().__init__(spark=spark)
        self._what = what

    def run_portable_pipeline(self, pipeline: Any, options: Any) -> Any:
        transforms = pipeline.components.transforms.values()
        # The runner reads the payload of the composite, and others that of a part of it.
        (step,) = (each for each in transforms if each.spec.urn == DECLARATIVE_KEYED_PROCESS)
        par_do = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
        setattr(par_do, f"requires_{self._what}_input", True)
        step.spec.payload = par_do.SerializeToString()
        pipeline.requirements.append(f"beam:requirement:pardo:{self._what}_input:v1")
        return super().run_portable_pipeline(pipeline, options)


@pytest.mark.parametrize("what", ["stable", "time_sorted"])
def test_steps_whose_epochs_are_repeated_alike_leave_nothing(
    what: str, server: RedisServer, spark_session: Any, left: list[int]
) -> None:
    runner = AskingDeclared(spark_session, what)
    found = harvest_on(runner, lookups, f"--state_store={server.url}", FLAG)
    assert sorted(found["found"]) == EXPECTED
    assert left
    assert not any(left)


class WithFactor(KeyedProcess):
    """Looks up two entries, one after another, and then looks at a side input."""

    first = MapState("first", VarIntCoder(), StrUtf8Coder())
    second = MapState("second", VarIntCoder(), StrUtf8Coder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        follow = ctx.declare("follow", lambda _: self.second.get(7))
        emit = ctx.declare(
            "emit", lambda found: ctx.output((ctx.key, ctx.side_inputs["factor"] * len(found)))
        )

        def element(pair: tuple[str, int]) -> Any:
            if pair[1] >= 0:
                return self.first.get(pair[1]).then_compose(follow).then_accept(emit)
            for number in range(60):
                self.first.put(number, "x" * 200)
                self.second.put(number, "y" * 300)
            return ctx.completed()

        return element


class Collects(beam.DoFn):  # type: ignore[misc]
    """Emits how many elements of a key and window it has got by the end of the window."""

    SEEN = BagStateSpec("seen", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        seen.add(pair[1])
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, sorted(seen.read())


@pytest.mark.parametrize("flags", [(), (FLAG,)], ids=["all is finished", "some is left"])
def test_windows_downstream_wait_for_what_is_left(
    flags: tuple[str, ...], server: RedisServer, spark_session: Any, left: list[int]
) -> None:
    """Windows have passed when their elements go on, and the next step is in the same task."""
    windows = 3

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream()
        for window in range(windows):
            start = 10 * window
            first = [(f"{key}", -1) for key in range(KEYS)]
            events.add_elements([TimestampedValue(each, start + 1) for each in first])
            events.advance_watermark_to(start + 2)
            some = [(f"{key}", value) for key in range(KEYS) for value in (window, 10 + window)]
            events.add_elements([TimestampedValue(each, start + 3) for each in some])
            events.advance_watermark_to(start + 11)  # the window has expired
        played = p | events.advance_watermark_to_infinity()
        pairs = played | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        factors = [TimestampedValue(3 + window, 10 * window) for window in range(windows)]
        side = p | beam.Create(factors) | "Times" >> beam.Map(lambda factor: factor)
        factor = AsSingleton(side | "S" >> beam.WindowInto(FixedWindows(10)))
        step = DeclarativeKeyedProcess(WithFactor(), side_inputs={"factor": factor})
        made = pairs | beam.WindowInto(FixedWindows(10)) | STEP >> step
        pairs = made | beam.Map(lambda pair: pair).with_output_types(tuple[str, int])
        return {"found": pairs | beam.ParDo(Collects())}

    found = harvest(spark_session, build, f"--state_store={server.url}", *flags)
    assert sorted(found["found"]) == sorted(
        (f"{key}", 2 * [300 * (3 + window)]) for key in range(KEYS) for window in range(windows)
    )
    assert any(left) is bool(flags)
