"""From a TestStream's proto to its events."""

from collections.abc import Iterable

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core.errors import InvalidPipelineError, UnsupportedFeatureError
from beam_spark_runner.graph.model import Transform
from beam_spark_runner.portable.payloads import parse
from beam_spark_runner.scheduling.playback import (
    AdvanceClock,
    AdvanceWatermark,
    Elements,
    Event,
    TimedElement,
)


def events_of(transform: Transform) -> tuple[Event, ...]:
    """Read the events of a TestStream.

    An event without a tag, or with one that no output has, is of the only output.

    Raises:
        InvalidPipelineError: the payload is no TestStreamPayload, or an event has a tag that
            none of several outputs has.
        UnsupportedFeatureError: the events come from an endpoint.

    Source: proto TestStreamPayload.
    """
    payload = parse(beam_runner_api_pb2.TestStreamPayload, transform.payload, transform.name)
    if payload.endpoint.url:
        raise UnsupportedFeatureError("a TestStream whose events a service gives", transform.name)
    return tuple(_event(event, transform) for event in payload.events)


def _event(proto: beam_runner_api_pb2.TestStreamPayload.Event, transform: Transform) -> Event:
    match proto.WhichOneof("event"):
        case "watermark_event":
            watermark = proto.watermark_event
            tag = _tag(watermark.tag, transform)
            return AdvanceWatermark(tag, watermark.new_watermark * 1000)
        case "processing_time_event":
            return AdvanceClock(proto.processing_time_event.advance_duration * 1000)
        case "element_event":
            elements = proto.element_event
            return Elements(_tag(elements.tag, transform), tuple(_timed(elements.elements)))
    raise InvalidPipelineError("an event of the TestStream is empty", transform.name)


def _timed(
    elements: Iterable[beam_runner_api_pb2.TestStreamPayload.TimestampedElement],
) -> Iterable[TimedElement]:
    for each in elements:
        yield TimedElement(each.encoded_element, each.timestamp * 1000)


def _tag(tag: str, transform: Transform) -> str:
    if tag in transform.outputs:
        return tag
    if len(transform.outputs) == 1:
        (only,) = transform.outputs
        return only
    raise InvalidPipelineError(f"no output of the TestStream has the tag {tag!r}", transform.name)
