"""What records unbounded sources for Interactive Beam, without a cluster around it."""

import pickle
from typing import Any

import apache_beam as beam
import pytest
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
from beam_spark_runner.semantics.timers import END_OF_TIME, Instant
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.policy import KeyPolicy
from tests.compiled import compile_pipeline
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

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
        none: Any = beam.DoFn.StateParam(NONE),
    ) -> None:
        super().process(element[1], timestamp, window)


@pytest.mark.parametrize(
    ("at", "watermark"),
    [
        ((1,), 3),  # late
        ((9, 8), 7.999999),
        ((20, 30), 15),
        ((), 3),
    ],
)
def test_each_event_gets_the_time_of_its_bundle(
    running: Any, at: tuple[int, ...], watermark: float
) -> None:
    """The watermark has gone from 3 to 15."""
    stage = running(_OfKeys())
    stage.bundle.finish()
    store = MemoryState(lambda _, data: 1)
    to = Instant(15 * SECOND, 10 * SECOND)
    stage.bundle = stage.start(KeyPolicy(to, store, 3 * SECOND, 10 * SECOND))
    event = WatermarkEvent(MIN_TIMESTAMP)
    elements = [event, *map(str, at)]
    for element, time in zip(elements, (5, *at), strict=True):
        stage.push(7, [element], GLOBAL, time)
    stage.bundle.finish()
    assert [element for element, _ in stage.out] == elements
    for _, timing in stage.out:
        assert timing.processing_time == Timestamp(10)
        assert timing.watermark == Timestamp(watermark)


def test_events_become_records_that_pickle(running: Any) -> None:
    given = OutputFormat.SERIALIZED_TEST_STREAM_FILE_RECORDS
    stage = running(recording._TestStreamFormatter(FastPrimitivesCoder(), given))
    for event in (recording._Header("tag"), WatermarkEvent(0), ProcessingTimeEvent(1), "a"):
        stage.key(7, [(event, TimingInfo(10, 3))], GLOBAL)
    stage.bundle.finish()
    assert str(stage.out[0]) == str(beam_interactive_api_pb2.TestStreamFileHeader(tag="tag"))
    header, *records = [each.SerializeToString() for each in pickle.loads(pickle.dumps(stage.out))]
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


def test_elements_of_a_test_stream_may_have_windows() -> None:
    element = WindowedValue("a", Timestamp(3), (IntervalWindow(0, 5),))
    for given, is_unpacked in ((WindowedValueHolder(element), True), ("a", False)):
        pipeline = beam.Pipeline()
        pipeline | Stream().add_elements([given]) | "See" >> beam.Map(print)
        recording.play_what_was_recorded(pipeline, is_interactive=False)
        names = [
            each.unique_name for each in pipeline.to_runner_api().components.transforms.values()
        ]
        assert any("Unpack" in name for name in names) == is_unpacked


def test_what_is_played_is_what_was_recorded() -> None:
    element = WindowedValue("a", Timestamp(3), (IntervalWindow(0, 5),))
    unpack = recording._Unpack()
    assert list(unpack.process(WindowedValueHolder(element))) == [element]
    assert list(unpack.process("b")) == ["b"]
