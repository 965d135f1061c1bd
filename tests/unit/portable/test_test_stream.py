from typing import Any

import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.portability.api import beam_runner_api_pb2, endpoints_pb2
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError, UnsupportedFeatureError
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.graph.model import Transform
from beam_spark_runner.portable.test_stream import events_of
from beam_spark_runner.scheduling.playback import (
    AdvanceClock,
    AdvanceWatermark,
    Elements,
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
    )


def test_tags() -> None:
    stream = Stream(coder=VarIntCoder()).add_elements([1], tag="b").advance_watermark_to(3, "a")
    events = events_of(transform_of(stream, "a", "b"))
    assert [getattr(event, "tag", None) for event in events] == ["b", "a"]
    only = events_of(transform_of(stream, "output"))
    assert [getattr(event, "tag", None) for event in only] == ["output", "output"]
    with pytest.raises(InvalidPipelineError, match="no output of the TestStream has the tag 'b'"):
        events_of(transform_of(stream, "a", "c"))


@pytest.mark.parametrize(
    ("payload", "error", "message"),
    [
        pytest.param(
            beam_runner_api_pb2.TestStreamPayload(
                endpoint=endpoints_pb2.ApiServiceDescriptor(url="localhost:1")
            ),
            UnsupportedFeatureError,
            "a TestStream whose events a service gives",
            id="endpoint",
        ),
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
