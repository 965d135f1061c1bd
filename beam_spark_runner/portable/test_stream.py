"""Decodes the events of a TestStream."""

from collections.abc import Iterable

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.graph.model import Transform
from beam_spark_runner.portable.payloads import parse
from beam_spark_runner.scheduling.test_stream_events import (
    AdvanceClock,
    AdvanceWatermark,
    Elements,
    End,
    Event,
    TimedElement,
)

_MILLISECOND_US = 1000


def service_of(transform: Transform) -> str | None:
    """Return the URL of the service that sends the events of a TestStream.

    None: its payload has the events.

    Raises:
        InvalidPipelineError: The payload is no TestStreamPayload.
    """
    return _payload(transform).endpoint.url or None


def events_of(transform: Transform) -> tuple[Event, ...]:
    """Read the events of a TestStream from its payload; an ``End`` is added as the last one.

    If there is one output, events belong to it, whatever their tag.

    Raises:
        InvalidPipelineError: The payload is no TestStreamPayload, or an event has a tag that
            none of several outputs has.

    Source: proto TestStreamPayload.
    """
    events = _payload(transform).events
    return (*(_event(event, transform, _MILLISECOND_US) for event in events), End())


def served_event(proto: beam_runner_api_pb2.TestStreamPayload.Event, transform: Transform) -> Event:
    """Read an event that a TestStreamService has sent. Its times are in microseconds.

    According to the proto, times are in milliseconds, as they are in payloads. But Beam's service
    for Interactive Beam sends microseconds, and Beam's DirectRunner expects them.

    Raises:
        InvalidPipelineError: See ``events_of``.
    """
    return _event(proto, transform, 1)


def _payload(transform: Transform) -> beam_runner_api_pb2.TestStreamPayload:
    return parse(beam_runner_api_pb2.TestStreamPayload, transform.payload, transform.name)


def _event(
    proto: beam_runner_api_pb2.TestStreamPayload.Event, transform: Transform, unit_us: int
) -> Event:
    match proto.WhichOneof("event"):
        case "watermark_event":
            watermark = proto.watermark_event
            output = _output(watermark.tag, transform)
            return AdvanceWatermark(output, watermark.new_watermark * unit_us)
        case "processing_time_event":
            return AdvanceClock(proto.processing_time_event.advance_duration * unit_us)
        case "element_event":
            event = proto.element_event
            elements = tuple(_timed(event.elements, unit_us))
            return Elements(_output(event.tag, transform), elements)
    raise InvalidPipelineError("an event of the TestStream is empty", transform.name)


def _timed(
    elements: Iterable[beam_runner_api_pb2.TestStreamPayload.TimestampedElement], unit_us: int
) -> Iterable[TimedElement]:
    for element in elements:
        yield TimedElement(element.encoded_element, element.timestamp * unit_us)


def _output(tag: str, transform: Transform) -> PCollectionId:
    """Return the output that has the tag; if there is only one, it may have any."""
    if tag in transform.outputs:
        return transform.outputs[tag]
    if len(transform.outputs) == 1:
        (only,) = transform.outputs.values()
        return only
    raise InvalidPipelineError(f"no output of the TestStream has the tag {tag!r}", transform.name)
