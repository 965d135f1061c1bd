from typing import Any

import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.graph.model import Transform
from beam_spark_runner.portable.test_stream import events_of, served_event, service_of
from beam_spark_runner.scheduling.test_stream_events import (
    AdvanceClock,
    AdvanceWatermark,
    Elements,
    End,
    TimedElement,
)


class _Coders:
    def get_id(self, coder: Any) -> str:
        return "coder"


class _Context:
    coders = _Coders()


def transform_of(stream: Stream, *tags: str) -> Transform:
    urn, payload = stream.to_runner_api_parameter(_Context())
    assert urn == urns.TEST_STREAM
    return Transform(
        name="Events",
        urn=urn,
        payload=payload.SerializeToString(),
        outputs={tag: PCollectionId(tag) for tag in tags},
    )


def test_events_in_their_order() -> None:
    stream = (
        Stream(coder=VarIntCoder())
        .add_elements([1, TimestampedValue(300, 2.5)])
        .advance_watermark_to(3)
        .advance_processing_time(1.5)
        .advance_watermark_to_infinity()
    )
    assert events_of(transform_of(stream, "None")) == (
        Elements("None", (TimedElement(b"\1", MIN_US), TimedElement(b"\xac\2", 2_500_000))),
        AdvanceWatermark("None", 3_000_000),
        AdvanceClock(1_500_000),
        AdvanceWatermark("None", MAX_US),
        End(),
    )


def test_tags() -> None:
    stream = Stream(coder=VarIntCoder()).add_elements([1], tag="b").advance_watermark_to(3, "a")
    events = events_of(transform_of(stream, "a", "b"))
    assert [getattr(event, "output", None) for event in events] == ["b", "a", None]
    only = events_of(transform_of(stream, "output"))
    assert [getattr(event, "output", None) for event in only] == ["output", "output", None]
    with pytest.raises(InvalidPipelineError, match="no output of the TestStream has the tag 'b'"):
        events_of(transform_of(stream, "a", "c"))


def test_a_service_gives_microseconds() -> None:
    stream = (
        Stream(coder=VarIntCoder())
        .add_elements([TimestampedValue(1, 2)])
        .advance_watermark_to(3)
        .advance_processing_time(1.5)
    )
    transform = transform_of(Stream(coder=VarIntCoder(), endpoint="localhost:1"), "None")
    assert service_of(transform) == "localhost:1"
    events = [served_event(each.to_runner_api(VarIntCoder()), transform) for each in stream._events]
    assert Elements("None", (TimedElement(b"\1", 2_000),)) in events
    assert AdvanceWatermark("None", 3_000) in events
    assert AdvanceClock(1_500) in events


def test_a_payload_with_events_names_no_service() -> None:
    assert service_of(transform_of(Stream().advance_watermark_to(3), "None")) is None


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        pytest.param(
            beam_runner_api_pb2.TestStreamPayload(
                events=[beam_runner_api_pb2.TestStreamPayload.Event()]
            ),
            InvalidPipelineError,
            "an event of the TestStream is empty",
            id="empty event",
        ),
    ],
)
def test_what_is_refused(payload: Any, error: type[Exception], message: str) -> None:
    transform = Transform(
        name="Events",
        urn=urns.TEST_STREAM,
        payload=payload.SerializeToString(),
        outputs={"out": PCollectionId("out")},
    )
    with pytest.raises(error, match=message):
        events_of(transform)
