"""One SDK harness cannot take the threads of the others: its calls have a limit."""

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
)

from beam_spark_runner.harness.fn_api import doorman
from beam_spark_runner.harness.fn_api import fn_api_server as server
from beam_spark_runner.harness.fn_api.connection import SdkConnection
from beam_spark_runner.harness.fn_api.fn_api_server import FnApiServer

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(120)]

SOON_S = 60.0
MAX_CALLS = doorman.MAX_CALLS_OF_A_KIND


class Served:
    """A server with two harnesses, and calls of theirs that stay open."""

    def __init__(self) -> None:
        self.server = FnApiServer()
        info = beam_provision_api_pb2.ProvisionInfo()
        self.greedy, self.other = (SdkConnection(name, info) for name in ("greedy", "other"))
        for each in (self.greedy, self.other):
            self.server.add(each)
        self.channel = grpc.insecure_channel(self.server.url)
        self._over = threading.Event()

    def silence(self) -> Iterator[Any]:
        self._over.wait(SOON_S)
        yield from ()

    def open(self, kind: str, connection: SdkConnection) -> Any:
        metadata = [("worker_id", connection.worker_id)]
        return STREAMS[kind](self.channel, self.silence(), metadata)

    def close(self) -> None:
        self._over.set()
        self.channel.close()
        self.server.stop()


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.close()


def _state(channel: Any, requests: Any, metadata: Any) -> Any:
    return beam_fn_api_pb2_grpc.BeamFnStateStub(channel).State(requests, metadata=metadata)


def _logging(channel: Any, requests: Any, metadata: Any) -> Any:
    return beam_fn_api_pb2_grpc.BeamFnLoggingStub(channel).Logging(requests, metadata=metadata)


def _status(channel: Any, requests: Any, metadata: Any) -> Any:
    stub = beam_fn_api_pb2_grpc.BeamFnWorkerStatusStub(channel)
    return stub.WorkerStatus(requests, metadata=metadata)


def _without_request(path: str) -> Callable[[Any, Any, Any], Any]:
    """A call of a method with one request, which never comes."""

    def call(channel: Any, requests: Any, metadata: Any) -> Any:
        return channel.stream_stream(path)(requests, metadata=metadata)

    return call


_MODEL = "/org.apache.beam.model"
STREAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "state": _state,
    "logging": _logging,
    "status": _status,
    "provision": _without_request(f"{_MODEL}.fn_execution.v1.ProvisionService/GetProvisionInfo"),
    "files": _without_request(f"{_MODEL}.job_management.v1.ArtifactRetrievalService/GetArtifact"),
    "descriptors": _without_request(
        f"{_MODEL}.fn_execution.v1.BeamFnControl/GetProcessBundleDescriptor"
    ),
}


def info_of(served: Served, connection: SdkConnection) -> Any:
    stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(served.channel)
    return stub.GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(),
        metadata=[("worker_id", connection.worker_id)],
        timeout=SOON_S,
    )


def first_to_end(calls: list[Any], count: int) -> list[Any]:
    """Wait until so many calls have ended, and return all that have."""
    ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for each in calls:
        if not each.add_callback(lambda each=each: ended.put(each)):
            ended.put(each)  # it has ended already
    found = [ended.get(timeout=SOON_S) for _ in range(count)]
    assert ended.empty()
    return found


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_of_a_kind_have_a_limit(kind: str, served: Served) -> None:
    calls = [served.open(kind, served.greedy) for _ in range(MAX_CALLS + 5)]
    ended = first_to_end(calls, 5)
    for each in ended:
        assert each.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert each.details().startswith(f"the SDK harness greedy may have {MAX_CALLS} calls of /")
        assert served.greedy.worker_id not in each.details()
    info_of(served, served.other)  # nobody else notices
    if kind != "provision":
        info_of(served, served.greedy)


def test_a_stream_that_has_ended_makes_room(served: Served) -> None:
    calls = [served.open("state", served.greedy) for _ in range(MAX_CALLS + 1)]
    (refused,) = first_to_end(calls, 1)
    calls.remove(refused)
    calls[0].cancel()
    request = beam_fn_api_pb2.StateRequest(id="1", instruction_id="1")
    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    while code is grpc.StatusCode.RESOURCE_EXHAUSTED:  # the server has not seen the end yet
        answers = _state(served.channel, iter([request]), [("worker_id", served.greedy.worker_id)])
        list(answers_or_none(answers))
        code = answers.code()
    assert code is grpc.StatusCode.OK


def answers_or_none(answers: Any) -> Iterator[Any]:
    with contextlib.suppress(grpc.RpcError):
        yield from answers


def test_calls_without_an_id_share_a_limit(served: Served) -> None:
    """Only descriptors are served without one, as the SDK of TypeScript asks for them."""
    calls = [
        STREAMS["descriptors"](served.channel, served.silence(), []) for _ in range(MAX_CALLS + 1)
    ]
    (refused,) = first_to_end(calls, 1)
    assert "SDK harnesses may have" in refused.details()
    info_of(served, served.other)


def test_strangers_hold_no_thread(served: Served) -> None:
    metadata = [("worker_id", "greedy-0000")]
    calls = [_state(served.channel, served.silence(), metadata) for _ in range(100)]
    for each in first_to_end(calls, 100):
        assert each.code() is grpc.StatusCode.UNAUTHENTICATED
    info_of(served, served.other)


def test_files_and_lists_of_them_are_served(served: Served) -> None:
    """Methods with one request are handled as streams, which their callers do not notice."""
    metadata = [("worker_id", served.other.worker_id)]
    artifacts = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(served.channel)
    wanted = beam_artifact_api_pb2.ResolveArtifactsRequest()
    wanted.artifacts.add(type_urn="urn")
    assert artifacts.ResolveArtifacts(wanted, metadata=metadata).replacements == wanted.artifacts
    with pytest.raises(grpc.RpcError) as raised:
        list(
            artifacts.GetArtifact(
                beam_artifact_api_pb2.GetArtifactRequest(artifact=wanted.artifacts[0]),
                metadata=metadata,
            )
        )
    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


def test_all_threads_suffice_for_many_harnesses() -> None:
    assert 20 * len(STREAMS) * MAX_CALLS <= server._MAX_CALLS
