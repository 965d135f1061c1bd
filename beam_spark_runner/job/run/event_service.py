"""The events of a TestStream that a service sends while the pipeline runs."""

import threading
from collections import deque
from collections.abc import Iterable

import grpc
from apache_beam.portability.api import beam_interactive_api_pb2, beam_interactive_api_pb2_grpc

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import EventServiceError
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.driving.playback import Events, EventsInTurn, KnownEvents
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.portable.test_stream import events_of, served_event, service_of
from beam_spark_runner.scheduling.test_stream_events import End, Event

_MAX_BYTES_AHEAD = 1 << 24  # without what gRPC itself buffers
_MAX_EVENTS_AHEAD = 1000
_JOIN_S = 5.0
_OPTIONS = [("grpc.max_receive_message_length", -1)]


class ServedEvents:
    """Reads the events of a TestStream from a TestStreamService.

    The first ``take`` makes the call: gRPC starts threads, which must not run when Spark's JVM is
    started by a fork. From then on, a thread reads ahead.

    Threads: ``take`` from one; ``stop`` from any.

    Source: proto TestStreamService.
    """

    def __init__(self, test_stream: Transform, url: str) -> None:
        """Store the arguments; nothing is read yet.

        Args:
            test_stream: The TestStream transform.
            url: The gRPC address of the service.
        """
        self._test_stream, self._url = test_stream, url
        self._changed = threading.Condition()
        self._arrived: deque[tuple[Event, int]] = deque()  # with their sizes, in bytes
        self._bytes = 0
        self._error: Exception | None = None  # raised once all events in ``_arrived`` are taken
        self._stopped = threading.Event()
        self._call: grpc.Call | None = None
        self._reader: threading.Thread | None = None

    def take(self, timeout_s: float) -> Event | None:
        """Return the next event; None: no event arrived in time, or ``stop`` was called.

        Raises:
            EventServiceError: The service cannot be reached, or has failed.
            InvalidPipelineError: The tag of an event is not that of an output.
        """
        with self._changed:
            if self._reader is None and not self._stopped.is_set():
                self._reader = threading.Thread(
                    target=self._read_all, name="beam-events", daemon=True
                )
                self._reader.start()
            self._changed.wait_for(
                lambda: self._arrived or self._error or self._stopped.is_set(), timeout_s
            )
            if self._stopped.is_set():
                return None
            if self._arrived:
                event, size = self._arrived.popleft()
                self._bytes -= size
                self._changed.notify_all()
                return event
            if self._error is not None:
                raise self._error
            return None

    def stop(self) -> None:
        """Cancel the call; a thread that waits in ``take`` gets None."""
        with self._changed:
            self._stopped.set()
            self._changed.notify_all()
            if self._call is not None:
                self._call.cancel()
        if self._reader is not None:
            self._reader.join(_JOIN_S)

    def _read_all(self) -> None:
        """Read all events; the body of the reader thread."""
        request = beam_interactive_api_pb2.EventsRequest(output_ids=list(self._test_stream.outputs))
        with grpc.insecure_channel(self._url, options=_OPTIONS) as channel:
            stub = beam_interactive_api_pb2_grpc.TestStreamServiceStub(channel)
            try:
                call = stub.Events(request)
                with self._changed:
                    self._call = call
                    if self._stopped.is_set():
                        return
                for proto in call:
                    self._add(served_event(proto, self._test_stream), proto.ByteSize())
                    if self._stopped.is_set():
                        return
                self._add(End(), 0)
            except grpc.RpcError as error:
                self._fail(
                    EventServiceError(
                        self._test_stream.name,
                        self._url,
                        f"{error.code().name}: {error.details()}",
                    )
                )
            except Exception as error:  # ``take`` raises it
                self._fail(error)

    def _add(self, event: Event, size: int) -> None:
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    self._stopped.is_set()
                    or not self._arrived
                    or (
                        self._bytes + size <= _MAX_BYTES_AHEAD
                        and len(self._arrived) < _MAX_EVENTS_AHEAD
                    )
                )
            )
            self._arrived.append((event, size))
            self._bytes += size
            self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


def events_of_test_streams(graph: Graph) -> Events | None:
    """Return the events of the graph's TestStreams, one of each in turn; None: it has none.

    The order of the names is the same when the pipeline is submitted again; that in the proto may
    not be.
    """
    streams: list[tuple[Events, Iterable[PCollectionId]]] = []
    for transform in sorted(graph.transforms.values(), key=lambda step: step.name):
        if transform.urn == urns.TEST_STREAM:
            url = service_of(transform)
            known_or_served = (
                KnownEvents(events_of(transform)) if url is None else ServedEvents(transform, url)
            )
            streams.append((known_or_served, transform.outputs.values()))
    return EventsInTurn(streams) if streams else None
