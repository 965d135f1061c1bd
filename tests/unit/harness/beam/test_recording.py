"""What records unbounded sources for Interactive Beam, without a cluster around it."""

from typing import Any

import apache_beam as beam
from apache_beam.coders import BooleanCoder, FastPrimitivesCoder
from apache_beam.portability.api import beam_interactive_api_pb2
from apache_beam.testing.test_stream import (
    OutputFormat,
    ProcessingTimeEvent,
    ReverseTestStream,
    TimingInfo,
    WatermarkEvent,
    WindowedValueHolder,
)
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam import recording
from beam_spark_runner.job.compile import compile_pipeline
from beam_spark_runner.semantics.timers import END_OF_TIME, Instant
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.policy import KeyPolicy
from tests.unit.harness.beam.keyed import GLOBAL

SECOND = 1_000_000
NOBODY_KNOWS = TimingInfo(0, 0)


def until(store: MemoryState, clock: int, watermark: int) -> KeyPolicy:
    """Return the policy of a bundle before which time had come so far, in seconds."""
    to = Instant((watermark + 1) * SECOND, clock * SECOND)
    return KeyPolicy(to, store, watermark * SECOND, clock * SECOND)


def test_time_is_sampled_until_the_input_ends(running: Any) -> None:
    sample = [ProcessingTimeEvent(2), WatermarkEvent(MIN_TIMESTAMP)]
    store = MemoryState(lambda _, data: 1)
    stage = running(recording._Sampler("tag", 2))
    stage.bundle.finish()

    def work(policy: KeyPolicy, *elements: str) -> list[Any]:
        stage.taken.elements.clear()
        stage.bundle = stage.start(policy)
        stage.key(7, [(element, NOBODY_KNOWS) for element in elements], GLOBAL)
        stage.bundle.finish()
        return list(stage.out)

    assert work(until(store, 10, 0), "a", "b") == [recording._Header("tag"), *sample, "a", "b"]
    assert work(until(store, 11, 0), "c") == ["c"]
    assert work(until(store, 12, 0), "d") == ["d", *sample]
    assert work(until(store, 90, 0), "e") == ["e", *sample], "once, however late"
    assert work(KeyPolicy(END_OF_TIME, store, 0, 91 * SECOND), "f") == ["f"]


class _OfKeys(recording._PairWithTiming):
    """Has a state, so that its input is keyed, as that of the steps before it is."""

    NONE = BagStateSpec("none", BooleanCoder())

    def process(self, element: Any, none: Any = beam.DoFn.StateParam(NONE)) -> Any:
        return super().process(element)


def test_each_event_gets_the_time_of_its_bundle(running: Any) -> None:
    stage = running(_OfKeys())
    stage.bundle.finish()
    stage.bundle = stage.start(until(MemoryState(lambda _, data: 1), 10, 3))
    stage.key(7, ["a"], GLOBAL)
    stage.bundle.finish()
    ((element, timing),) = stage.out
    assert element == (7, "a")
    assert (timing.processing_time, timing.watermark) == (Timestamp(10), Timestamp(3))


def test_events_become_records_that_pickle(running: Any) -> None:
    given = OutputFormat.SERIALIZED_TEST_STREAM_FILE_RECORDS
    stage = running(recording._TestStreamFormatter(FastPrimitivesCoder(), given))
    for event in (recording._Header("tag"), WatermarkEvent(0), ProcessingTimeEvent(1), "a"):
        stage.key(7, [(event, TimingInfo(10, 3))], GLOBAL)
    stage.bundle.finish()
    header, *records = [each.SerializeToString() for each in stage.out]
    assert beam_interactive_api_pb2.TestStreamFileHeader.FromString(header).tag == "tag"
    parse = beam_interactive_api_pb2.TestStreamFileRecord.FromString
    watermark, clock, elements = [parse(each).recorded_event for each in records]
    assert watermark.watermark_event.new_watermark == 3 * SECOND
    assert clock.processing_time_event.advance_duration == 10 * SECOND
    assert len(elements.element_event.elements) == 1


def test_a_pipeline_that_records_can_be_compiled() -> None:
    pipeline = beam.Pipeline()
    ticks = pipeline | Stream().add_elements([1])
    ticks | ReverseTestStream(1, "tag") | beam.Map(print)
    recording.use_runnable_recorders(pipeline)
    plan = compile_pipeline(pipeline.to_runner_api())
    assert sum(stage.is_keyed for stage in plan.stages.values()) == 2


def test_what_is_played_is_what_was_recorded() -> None:
    element = WindowedValue("a", Timestamp(3), (IntervalWindow(0, 5),))
    unpack = recording._Unpack()
    assert list(unpack.process(WindowedValueHolder(element))) == [element]
    assert list(unpack.process("b")) == ["b"]
