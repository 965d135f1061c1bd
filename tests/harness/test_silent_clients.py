"""Clients of the job server that fall silent, or whose machine is gone, hold no threads."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from apache_beam.portability.api import (
    beam_artifact_api_pb2,
    beam_artifact_api_pb2_grpc,
    beam_job_api_pb2,
    beam_job_api_pb2_grpc,
)

from beam_spark_runner.job import access as access_module
from beam_spark_runner.job.server import api as api_module
from beam_spark_runner.job.server import staging as staging_module
from beam_spark_runner.job.server.api import JobApi
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.options.server_access import ClientAccess
from beam_spark_runner.options.server_options import ServerConfig
from tests.unit.backchannel.served import until
from tests.unit.job.server.served import SOON_S, Gate, request, served
from tests.unit.job.server.test_staging import artifact

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(120)]

Serve = Callable[[], tuple[Jobs, Gate, JobApi]]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    config = ServerConfig(
        job_port=0, artifact_port=0, artifacts_dir=str(tmp_path), max_concurrent_jobs=1
    )
    apis: list[JobApi] = []
    with served(config) as (jobs, gate):

        def start() -> tuple[Jobs, Gate, JobApi]:
            apis.append(JobApi(config, jobs))
            return jobs, gate, apis[-1]

        yield start
        for each in apis:
            each.stop()


class Staging:
    """A staging stream whose client sends what a test says, and then nothing."""

    def __init__(self, url: str, *messages: Any) -> None:
        self._over = threading.Event()
        self._channel = grpc.insecure_channel(url)
        stub = beam_artifact_api_pb2_grpc.ArtifactStagingServiceStub(self._channel)
        self.call = stub.ReverseArtifactRetrievalService(self._say(messages))

    def _say(self, messages: Any) -> Iterator[Any]:
        yield from messages
        self._over.wait(SOON_S)

    def end(self) -> grpc.RpcError:
        """Return the error with which the server ends the stream."""
        with pytest.raises(grpc.RpcError) as raised:
            for _ in self.call:
                pass
        self.close()
        return raised.value

    def close(self) -> None:
        self._over.set()
        self._channel.close()


def token_of(jobs: Jobs, payload: bytes = b"") -> Any:
    """Prepare a pipeline with a file; return the first message of a client that stages it."""
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.dependencies.append(artifact("a.txt"))
    environment.dependencies[0].role_payload += payload
    return beam_artifact_api_pb2.ArtifactResponseWrapper(staging_token=jobs.prepare(wanted))


@pytest.mark.parametrize("has_token", [True, False])
def test_a_client_that_sends_nothing_is_told_so(
    has_token: bool, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_module, "_PATIENCE_S", 0.1)
    jobs, _, api = serve()
    error = Staging(api.artifact_url, *([token_of(jobs)] if has_token else [])).end()
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "sent nothing for 0.1 s" in error.details()


def test_a_later_stream_takes_the_place_of_a_silent_one(serve: Serve) -> None:
    jobs, _, api = serve()
    token = token_of(jobs)
    first = Staging(api.artifact_url, token)
    assert next(first.call).HasField("resolve_artifact")
    second = Staging(api.artifact_url, token)
    error = first.end()
    assert error.code() is grpc.StatusCode.ABORTED
    assert "another stream" in error.details()
    assert next(second.call).HasField("resolve_artifact")
    second.close()


def test_a_client_that_reads_nothing_is_cut_off(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request does not fit into the window of HTTP/2, so that gRPC waits while it sends."""
    monkeypatch.setattr(staging_module, "_PATIENCE_S", 0.2)
    jobs, _, api = serve()
    silent = Staging(api.artifact_url, token_of(jobs, payload=bytes(64 << 20)))
    until(lambda: bool(serving()))
    until(lambda: not serving())
    silent.close()


def serving() -> list[threading.Thread]:
    """Return the threads of the server, in this process, that serve staging streams."""
    return [each for each in threading.enumerate() if each.name == "job-api-staging"]


class Wire:
    """A proxy of one connection, which can be cut without a word, as if a machine was gone."""

    def __init__(self, url: str) -> None:
        host, _, port = url.rpartition(":")
        self._target = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._is_cut = threading.Event()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        near, _ = self._listening.accept()
        far = socket.create_connection(self._target)
        self._ends += [near, far]
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                if self._is_cut.is_set():
                    continue  # received by a machine that is not there
                target.sendall(data)
        except OSError:
            pass

    def cut(self) -> None:
        self._is_cut.set()

    def close(self) -> None:
        for each in (self._listening, *self._ends):
            each.close()


def soon(options: list[tuple[str, int]]) -> list[tuple[str, int]]:
    quick = {"grpc.keepalive_time_ms": 200, "grpc.keepalive_timeout_ms": 200}
    assert quick.keys() <= dict(options).keys()
    # Of pings for flow control, one of which may be under way when the wire is cut.
    quick["grpc.http2.ping_timeout_ms"] = 200
    return list({**dict(options), **quick}.items())


def test_a_client_whose_machine_is_gone_holds_no_thread(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "_OPTIONS", soon(api_module._OPTIONS))
    jobs, gate, api = serve()
    id_ = jobs.run(jobs.prepare(request()))
    gate.wait_for(1)
    record = jobs.job(id_).record
    wake, is_gone = record.events.wake, threading.Event()

    def woken() -> None:
        wake()
        is_gone.set()

    record.events.wake = woken  # type: ignore[method-assign]
    wire = Wire(api.url)
    with grpc.insecure_channel(wire.url) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        stream = service.GetMessageStream(beam_job_api_pb2.JobMessagesRequest(job_id=id_))
        next(stream)
        wire.cut()
        assert is_gone.wait(SOON_S)
    wire.close()


def test_a_client_notices_that_its_server_is_gone(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = soon(access_module._CHANNEL_OPTIONS)
    monkeypatch.setattr(access_module, "_CHANNEL_OPTIONS", options)
    jobs, gate, api = serve()
    id_ = jobs.run(jobs.prepare(request()))
    gate.wait_for(1)
    wire = Wire(api.url)
    with access_module.open_channel(wire.url, ClientAccess()) as channel:
        service = beam_job_api_pb2_grpc.JobServiceStub(channel)
        stream = service.GetStateStream(beam_job_api_pb2.GetJobStateRequest(job_id=id_))
        next(stream)
        wire.cut()
        with pytest.raises(grpc.RpcError) as raised:
            for _ in stream:
                pass
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
    wire.close()
