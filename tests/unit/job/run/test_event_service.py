"""Reading events from real services."""

import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import (
    beam_interactive_api_pb2_grpc,
    beam_runner_api_pb2,
    endpoints_pb2,
)

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import EventServiceError, InvalidPipelineError
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.job.run.event_service import ServedEvents, events_of_test_streams
from beam_spark_runner.scheduling.test_stream_events import (
    AdvanceClock,
    AdvanceWatermark,
    End,
    EndOfStream,
)

Payload = beam_runner_api_pb2.TestStreamPayload
Serve = Callable[[Callable[[Any], Iterator[Any]]], str]


def clock(by: int) -> Any:
    return Payload.Event(processing_time_event={"advance_duration": by})


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves what a function gives, and returns the URL."""
    servers: list[Any] = []

    def start(give: Callable[[Any], Iterator[Any]]) -> str:
        class Service(beam_interactive_api_pb2_grpc.TestStreamServiceServicer):  # type: ignore[misc]
            def Events(self, request: Any, context: Any) -> Iterator[Any]:
                return give(request)

        server = grpc.server(ThreadPoolExecutor(2))
        beam_interactive_api_pb2_grpc.add_TestStreamServiceServicer_to_server(Service(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        servers.append(server)
        return f"127.0.0.1:{port}"

    yield start
    for server in servers:
        server.stop(0).wait()


def transform_of(name: str, payload: Any, *tags: str) -> Transform:
    return Transform(
        name=name,
        urn=urns.TEST_STREAM,
        payload=payload.SerializeToString(),
        outputs={tag: PCollectionId(tag) for tag in tags},
    )


def recorded(url: str, *tags: str) -> Transform:
    payload = Payload(endpoint=endpoints_pb2.ApiServiceDescriptor(url=url))
    return transform_of("Recorded", payload, *tags)


def served(url: str, *tags: str) -> ServedEvents:
    return ServedEvents(recorded(url, *tags), url)


def test_events_are_taken_until_their_end(serve: Serve) -> None:
    asked = []

    def give(request: Any) -> Iterator[Any]:
        asked.append(sorted(request.output_ids))
        yield clock(5)
        yield Payload.Event(watermark_event={"new_watermark": 7, "tag": "b"})

    events = served(serve(give), "a", "b")
    assert [events.take(60) for _ in range(3)] == [AdvanceClock(5), AdvanceWatermark("b", 7), End()]
    assert asked == [["a", "b"]]
    events.stop()


def test_without_an_event_in_time_none_is_taken(serve: Serve) -> None:
    may_give = threading.Event()

    def give(request: Any) -> Iterator[Any]:
        may_give.wait()
        yield clock(5)

    events = served(serve(give), "a")
    assert events.take(0) is None
    may_give.set()
    assert events.take(60) == AdvanceClock(5)
    events.stop()


def test_a_service_that_is_not_there() -> None:
    events = served("127.0.0.1:1", "a")
    with pytest.raises(EventServiceError, match=r"Recorded: .* at 127.0.0.1:1 sends no .* UNAVAIL"):
        events.take(60)
    events.stop()


def test_a_service_that_fails_after_some_events(serve: Serve) -> None:
    def give(request: Any) -> Iterator[Any]:
        yield clock(5)
        raise ValueError("no more")

    events = served(serve(give), "a")
    assert events.take(60) == AdvanceClock(5)
    with pytest.raises(EventServiceError, match=r"Recorded: .* no more"):
        events.take(60)
    events.stop()


def test_an_event_of_an_output_that_nobody_has(serve: Serve) -> None:
    def give(request: Any) -> Iterator[Any]:
        yield Payload.Event(watermark_event={"new_watermark": 7, "tag": "c"})

    events = served(serve(give), "a", "b")
    with pytest.raises(InvalidPipelineError, match="the tag 'c'"):
        events.take(60)
    events.stop()


def test_who_waits_is_woken_at_the_end(serve: Serve) -> None:
    has_ended, is_asked = threading.Event(), threading.Event()

    def give(request: Any) -> Iterator[Any]:
        is_asked.set()
        has_ended.wait()
        yield clock(5)

    events = served(serve(give), "a")
    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(events.take, 600)
        assert is_asked.wait(60)
        events.stop()
        assert taken.result(60) is None
    assert events.take(600) is None
    has_ended.set()


def test_a_service_is_not_asked_before_it_is_needed_nor_after_the_end(serve: Serve) -> None:
    asked = []

    def give(request: Any) -> Iterator[Any]:
        asked.append(request)
        yield clock(5)

    events = served(serve(give), "a")
    events.stop()
    assert events.take(600) is None
    assert not asked


def test_an_endless_service_is_read_no_further_ahead_than_memory_allows(serve: Serve) -> None:
    given = 0
    event = Payload.Event(
        element_event={"tag": "a", "elements": [{"encoded_element": bytes(1 << 20)}]}
    )

    def give(request: Any) -> Iterator[Any]:
        nonlocal given
        while True:
            given += 1
            yield event

    events = served(serve(give), "a")
    for _ in range(5):
        assert events.take(60) is not None
    before = -1
    pause = threading.Event()
    while given != before:  # until flow control stops the service
        before = given
        pause.wait(0.5)
    assert given < 200  # gRPC buffers more on a machine that is busy, but not endlessly many
    assert events.take(60) is not None
    events.stop()


def test_streams_of_a_graph_take_turns(serve: Serve) -> None:
    """In the order of their names, whether their events are known or served."""

    def give(request: Any) -> Iterator[Any]:
        yield clock(5)

    graph = Graph(transforms={}, pcollections={}, coders={}, windowings={})
    assert events_of_test_streams(graph) is None
    streams = {
        TransformId("served"): recorded(serve(give), "a", "b"),
        TransformId("known"): transform_of("Known", Payload(events=[clock(1), clock(2)]), "out"),
    }
    events = events_of_test_streams(dataclasses.replace(graph, transforms=streams))
    assert events is not None
    assert [events.take(60) for _ in range(5)] == [
        AdvanceClock(1_000),
        AdvanceClock(5),
        AdvanceClock(2_000),
        EndOfStream(frozenset({"a", "b"})),
        End(),
    ]
    events.stop()
