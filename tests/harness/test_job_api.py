"""The Job API over gRPC, as clients of any SDK see it; without Spark."""

import threading
from collections.abc import Iterator
from concurrent import futures
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
from apache_beam.runners.portability import artifact_service

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.server import jobs as jobs_module
from beam_spark_runner.job.server.api import JobApi
from beam_spark_runner.options.server_options import ServerConfig
from tests.unit.job.server.served import SOON_S, Gate, request, served
from tests.unit.job.server.test_staging import artifact

pytestmark = pytest.mark.grpc

STATE = beam_job_api_pb2.JobState


class Served:
    """A server, and stubs of its services."""

    def __init__(self, jobs: Any, gate: Gate, api: JobApi) -> None:
        self.jobs, self.gate, self.api = jobs, gate, api
        self.channel = grpc.insecure_channel(api.url)
        self.service = beam_job_api_pb2_grpc.JobServiceStub(self.channel)

    def run(self, wanted: Any = None) -> str:
        prepared = self.service.Prepare(wanted or request())
        run = beam_job_api_pb2.RunJobRequest(preparation_id=prepared.preparation_id)
        return str(self.service.Run(run).job_id)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    config = ServerConfig(
        job_port=0, artifact_port=0, artifacts_dir=str(tmp_path), max_concurrent_jobs=1
    )
    with served(config) as (jobs, gate):
        api = JobApi(config, jobs)
        here = Served(jobs, gate, api)
        yield here
        here.channel.close()
        api.stop()


def status_of(call: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.RpcError) as raised:
        list(call()) if callable(call) else list(call)
    return raised.value.code(), raised.value.details()


@pytest.mark.parametrize(
    ("rpc", "asking"),
    [
        ("Run", beam_job_api_pb2.RunJobRequest(preparation_id="none")),
        ("GetState", beam_job_api_pb2.GetJobStateRequest(job_id="none")),
        ("GetPipeline", beam_job_api_pb2.GetJobPipelineRequest(job_id="none")),
        ("Cancel", beam_job_api_pb2.CancelJobRequest(job_id="none")),
        ("Drain", beam_job_api_pb2.DrainJobRequest(job_id="none")),
        ("GetJobMetrics", beam_job_api_pb2.GetJobMetricsRequest(job_id="none")),
        ("GetStateStream", beam_job_api_pb2.GetJobStateRequest(job_id="none")),
        ("GetMessageStream", beam_job_api_pb2.JobMessagesRequest(job_id="none")),
    ],
)
def test_a_job_that_nobody_knows(rpc: str, asking: Any, server: Served) -> None:
    code, text = status_of(lambda: getattr(server.service, rpc)(asking))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "'none'" in text


def test_a_staging_token_that_nobody_knows(server: Served) -> None:
    stub = beam_artifact_api_pb2_grpc.ArtifactStagingServiceStub(server.channel)
    first = beam_artifact_api_pb2.ArtifactResponseWrapper(staging_token="none")
    code, text = status_of(stub.ReverseArtifactRetrievalService(iter([first])))
    assert (code, text) == (grpc.StatusCode.NOT_FOUND, "there is no staging token 'none'")


def test_legacy_artifact_services_say_what_to_use(server: Served) -> None:
    staging = beam_artifact_api_pb2_grpc.LegacyArtifactStagingServiceStub(server.channel)
    retrieval = beam_artifact_api_pb2_grpc.LegacyArtifactRetrievalServiceStub(server.channel)
    calls = [
        lambda: staging.PutArtifact(iter([beam_artifact_api_pb2.PutArtifactRequest()])),
        lambda: staging.CommitManifest(beam_artifact_api_pb2.CommitManifestRequest()),
        lambda: retrieval.GetManifest(beam_artifact_api_pb2.GetManifestRequest()),
        lambda: retrieval.GetArtifact(beam_artifact_api_pb2.LegacyGetArtifactRequest()),
    ]
    for call in calls:
        code, text = status_of(call)
        assert code is grpc.StatusCode.UNIMPLEMENTED
        assert "ReverseArtifactRetrievalService" in text


def test_errors_have_codes(server: Served) -> None:
    wrong = request()
    wrong.pipeline_options.update({"beam:option:restart:v1": "perhaps"})
    code, text = status_of(lambda: server.service.Prepare(wrong))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("--restart: ")
    unsupported = request()
    for each in unsupported.pipeline.components.environments.values():
        each.urn = "beam:env:odd:v1"
    prepared = server.service.Prepare(unsupported)
    run = beam_job_api_pb2.RunJobRequest(preparation_id=prepared.preparation_id)
    code, text = status_of(lambda: server.service.Run(run))
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert "beam:env:odd:v1" in text


def test_what_cannot_be_decoded_is_refused(server: Served) -> None:
    broken = artifact("a.txt")
    broken.type_payload = b"\xff"
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.dependencies.append(broken)
    prepared = server.service.Prepare(wanted)
    wrapper = beam_artifact_api_pb2.ArtifactResponseWrapper
    resolved = beam_artifact_api_pb2.ResolveArtifactsResponse(replacements=[broken])
    stub = beam_artifact_api_pb2_grpc.ArtifactStagingServiceStub(server.channel)
    answers = [
        wrapper(staging_token=prepared.staging_session_token),
        wrapper(resolve_artifact_response=resolved),
        wrapper(is_last=True),
    ]
    code, _ = status_of(stub.ReverseArtifactRetrievalService(iter(answers)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    run = beam_job_api_pb2.RunJobRequest(preparation_id=prepared.preparation_id)
    code, _ = status_of(lambda: server.service.Run(run))
    assert code is grpc.StatusCode.FAILED_PRECONDITION


def test_clients_follow_a_job_early_and_late(server: Served) -> None:
    id_ = server.run()
    states = beam_job_api_pb2.GetJobStateRequest(job_id=id_)
    messages = beam_job_api_pb2.JobMessagesRequest(job_id=id_)

    def read(stub: Any) -> tuple[list[int], list[Any]]:
        return (
            [event.state for event in stub.GetStateStream(states)],
            list(stub.GetMessageStream(messages)),
        )

    with futures.ThreadPoolExecutor(1) as thread:
        early = server.service.GetMessageStream(messages)
        assert next(early).state_response.state == STATE.STOPPED
        rest = thread.submit(list, early)
        server.gate.let_through(1)
        heard = [*rest.result(SOON_S)]
    for _ in range(2):
        seen, said = read(server.service)
        assert seen == [STATE.STOPPED, STATE.STARTING, STATE.FAILED]
        assert said[1:] == heard
    assert [each.state_response.state for each in (heard[0], heard[-1])] == [
        *(STATE.STARTING, STATE.FAILED)
    ]
    (failed,) = [each.message_response for each in heard if each.HasField("message_response")]
    assert failed.message_text == "there is no Spark.\nStart one."
    assert failed.importance == beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR
    assert server.service.GetState(states).state == STATE.FAILED
    assert server.service.GetState(states).timestamp.seconds > 1.6e9


def test_a_client_that_goes_away_holds_no_thread(server: Served) -> None:
    id_ = server.run()
    server.gate.wait_for(1)
    follows = threading.Event()
    record = server.jobs.job(id_).record
    wake = record.events.wake

    def woken() -> None:
        wake()
        follows.set()

    record.events.wake = woken
    stream = server.service.GetMessageStream(beam_job_api_pb2.JobMessagesRequest(job_id=id_))
    next(stream)
    stream.cancel()
    assert follows.wait(SOON_S)


def test_jobs_are_listed_and_shown(server: Served) -> None:
    wanted = request()
    id_ = server.run(wanted)
    server.gate.wait_for(1)
    (info,) = server.service.GetJobs(beam_job_api_pb2.GetJobsRequest()).job_info
    assert (info.job_id, info.job_name, info.state) == (id_, "name", STATE.STARTING)
    asked = beam_job_api_pb2.GetJobPipelineRequest(job_id=id_)
    assert server.service.GetPipeline(asked).pipeline == wanted.pipeline
    asked = beam_job_api_pb2.GetJobMetricsRequest(job_id=id_)
    assert server.service.GetJobMetrics(asked).metrics.ByteSize() == 0
    options = server.service.DescribePipelineOptions(
        beam_job_api_pb2.DescribePipelineOptionsRequest()
    ).options
    assert "spark_conf" in {each.name for each in options}


def test_a_job_is_cancelled_while_it_waits(server: Served) -> None:
    server.run()
    id_ = server.run()
    cancel = beam_job_api_pb2.CancelJobRequest(job_id=id_)
    assert server.service.Cancel(cancel).state == STATE.CANCELLED
    assert server.service.Cancel(cancel).state == STATE.CANCELLED  # has no effect


@pytest.mark.parametrize(("host", "shown"), [("localhost", "localhost"), ("::1", "[::1]")])
def test_clients_are_told_by_which_name_they_reach_the_server(host: str, shown: str) -> None:
    """As from outside a container, which knows only its own name."""
    config = ServerConfig(job_host="0.0.0.0", advertised_host=host, job_port=0, artifact_port=0)
    with served(config) as (jobs, _):
        api = JobApi(config, jobs)
        try:
            port = api.url.rpartition(":")[2]
            with grpc.insecure_channel(f"localhost:{port}") as channel:
                service = beam_job_api_pb2_grpc.JobServiceStub(channel)
                told = service.Prepare(request()).artifact_staging_endpoint.url
            assert told == api.artifact_url
            assert told.rpartition(":")[0] == shown
        finally:
            api.stop()


def test_beams_own_client_stages_files(server: Served, tmp_path: Path) -> None:
    there = tmp_path / "there.txt"
    there.write_bytes(bytes(5 << 20))
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.dependencies.append(artifact("a.txt", path=str(there)))
    prepared = server.service.Prepare(wanted)
    assert prepared.artifact_staging_endpoint.url == server.api.artifact_url
    with grpc.insecure_channel(prepared.artifact_staging_endpoint.url) as channel:
        artifact_service.offer_artifacts(
            beam_artifact_api_pb2_grpc.ArtifactStagingServiceStub(channel),
            artifact_service.ArtifactRetrievalService(
                artifact_service.BeamFilesystemHandler(None).file_reader
            ),
            prepared.staging_session_token,
        )
    run = beam_job_api_pb2.RunJobRequest(preparation_id=prepared.preparation_id)
    server.service.Run(run)
    server.gate.wait_for(1)
    (staged,) = [path for path in tmp_path.rglob("*") if path.is_file() and path != there]
    assert staged.read_bytes() == there.read_bytes()


def test_clients_hear_from_the_staging_service_before_they_say_anything(server: Served) -> None:
    # As the SDK of TypeScript: it waits for the first sign of the server.
    stub = beam_artifact_api_pb2_grpc.ArtifactStagingServiceStub(server.channel)
    over = threading.Event()

    def nothing() -> Iterator[Any]:
        over.wait(SOON_S)
        yield from ()

    call = stub.ReverseArtifactRetrievalService(nothing())
    assert call.initial_metadata() is not None
    over.set()
    assert list(call) == []


def test_a_port_that_is_taken(server: Served) -> None:
    port = int(server.api.url.rpartition(":")[2])
    with pytest.raises(OptionsError, match=rf"--job_port: .*:{port}"):
        JobApi(ServerConfig(job_port=port, artifact_port=0), server.jobs)


def test_a_pipeline_whose_preparation_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loop(*_: Any, **__: Any) -> None:
        while True:
            pass

    monkeypatch.setattr(jobs_module, "prepare", loop)
    config = ServerConfig(
        job_port=0, artifact_port=0, artifacts_dir=str(tmp_path), prepare_timeout_s=1
    )
    with served(config) as (jobs, gate):
        api = JobApi(config, jobs)
        here = Served(jobs, gate, api)
        code, text = status_of(here.run)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "--prepare_timeout" in text
        here.channel.close()
        api.stop()
