"""Windows whose coder the runner does not know: their SDK says when they end."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.environments import EmbeddedPythonEnvironment, ProcessEnvironment
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.harness.codec.blocks import BlockReader, BlockWriter
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.wire import (
    coder_seen_by_the_runner,
    timer_coders_seen_by_the_runner,
    window_namer,
)
from tests.compiled import compile_pipeline
from tests.spark.lanes import Lane, LaneCoder, Lanes
from tests.spark.restrictions import RESTRICTION

LANE = Lane(20, 1, "x" * 200)  # whose length takes two bytes


class Counts(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any, tracker: Any = RESTRICTION) -> None: ...


class SetsTimers(beam.DoFn):  # type: ignore[misc]
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(self, element: Any, end: Any = beam.DoFn.TimerParam(END)) -> None: ...

    @on_timer(END)  # type: ignore[untyped-decorator]
    def at_the_end(self) -> None: ...


def described(step: Any, windows: Any = None, environment: Any = None) -> StageDescription:
    """Return the stage that begins with a step, or processes its restrictions."""
    pipeline = beam.Pipeline()
    made = pipeline | beam.Create([1]) | beam.WindowInto(windows or Lanes())
    (
        made
        | beam.Map(lambda x: (x, x)).with_output_types(tuple[int, int])
        | beam.Reshuffle()
        | "step" >> step
    )
    proto = pipeline.to_runner_api(default_environment=environment or ProcessEnvironment(""))
    plan = compile_pipeline(proto)
    found = [describe(plan, StageId(id_)) for id_ in sorted(plan.stages)]
    of_step = [each for each in found if any("step" in name for name in each.step_names.values())]
    return of_step[-1]


def port_coder(description: StageDescription) -> str:
    """Return the id of the coder of what a stage reads."""
    source = description.descriptor().transforms[description.source]
    return str(beam_fn_api_pb2.RemoteGrpcPort.FromString(source.spec.payload).coder_id)


def coder_of_the_sdk(description: StageDescription) -> Any:
    """Return the SDK's coder of what a stage reads."""
    return PipelineContext(description.descriptor()).coders.get_by_id(port_coder(description))


def source_coder(description: StageDescription) -> tuple[Any, Any]:
    """Return the coder of what a stage reads: the SDK's, and the runner's."""
    seen = coder_seen_by_the_runner(description.descriptor(), port_coder(description))
    return coder_of_the_sdk(description), seen


def element(window: Any, value: Any) -> WindowedValue:
    return WindowedValue(value, Timestamp(21), (window,))


def test_the_runner_sees_when_a_window_ends_and_how_its_sdk_names_it() -> None:
    of_sdk, of_runner = source_coder(described(beam.Map(print)))
    coded = of_sdk.get_impl().encode_nested(element(LANE, (1, 2)))
    (window,) = of_runner.get_impl().decode_nested(coded).windows
    assert window.max_timestamp().micros == 29_999_000  # Beam's timestamps are milliseconds there
    for coder, seen in ((of_runner, window), (of_sdk, LANE)):
        assert window_namer(coder.window_coder)(seen) == LaneCoder().encode(LANE)
    stored = of_runner.window_coder.encode(window)
    assert of_runner.window_coder.decode(stored) == window
    assert of_sdk.window_coder.decode(stored) == LANE


def test_windows_in_blocks() -> None:
    of_sdk, of_runner = source_coder(described(beam.Map(print)))
    windows = (LANE, Lane(20, 0))
    some = [WindowedValue((1, n), Timestamp(21), windows) for n in (2, 300)]
    block = b"".join(map(of_sdk.get_impl().encode_nested, some))
    ((values, origins),) = BlockReader(of_runner).read(block)
    pieces: list[bytes] = []
    BlockWriter(of_runner).write(values, origins, pieces)
    assert b"".join(pieces) == block


@pytest.mark.parametrize(
    ("window_fn", "window", "coder"),
    [
        (FixedWindows(10), IntervalWindow(20, 30), IntervalWindowCoder()),
        (beam.window.GlobalWindows(), GlobalWindow(), GlobalWindowCoder()),
    ],
)
def test_windows_of_the_model_are_as_they_are(window_fn: Any, window: Any, coder: Any) -> None:
    of_sdk, of_runner = source_coder(described(beam.Map(print), window_fn))
    assert of_sdk.window_coder == of_runner.window_coder == coder
    assert window_namer(coder)(window) == coder.encode(window)


def test_embedded_windows_are_as_they_are() -> None:
    of_sdk = coder_of_the_sdk(described(beam.Map(print), environment=EmbeddedPythonEnvironment()))
    assert isinstance(of_sdk.window_coder, LaneCoder)
    assert window_namer(of_sdk.window_coder)(LANE) == LaneCoder().encode(LANE)


def test_windows_of_timers() -> None:
    descriptor = described(beam.ParDo(SetsTimers())).descriptor()
    for transform in descriptor.transforms.values():
        payload = beam_runner_api_pb2.ParDoPayload()
        if transform.spec.urn == "beam:transform:pardo:v1":
            payload.ParseFromString(transform.spec.payload)
        for spec in payload.timer_family_specs.values():
            _, windows = timer_coders_seen_by_the_runner(descriptor, spec.timer_family_coder_id)
            of_sdk = PipelineContext(descriptor).coders.get_by_id(spec.timer_family_coder_id)
            break
    coded = of_sdk._window_coder.encode(LANE)
    assert windows.decode(coded).max_timestamp().micros == 29_999_000


def test_windows_of_residuals_have_their_end_in_front() -> None:
    description = described(beam.ParDo(Counts()))
    descriptor = description.descriptor()
    (read,) = descriptor.transforms[description.source].outputs.values()
    coder = PipelineContext(descriptor).coders.get_by_id(descriptor.pcollections[read].coder_id)
    of_sdk, _ = source_coder(description)
    assert coder.window_coder == of_sdk.window_coder
    assert coder.wrapped_value_coder == of_sdk.wrapped_value_coder


def test_what_an_sdk_asks_for_has_its_own_coder() -> None:
    description = described(beam.ParDo(SetsTimers()))
    strategies = description.descriptor().windowing_strategies.values()
    coders = PipelineContext(description.descriptor()).coders
    assert LaneCoder in {type(coders.get_by_id(each.window_coder_id)) for each in strategies}
