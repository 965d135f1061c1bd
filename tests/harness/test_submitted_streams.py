"""What clients ask a job server about a job that streams: watermarks, savepoints, draining."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.portability.portable_runner import PipelineResult
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp

from beam_spark_runner._generated import streaming_jobs_pb2
from beam_spark_runner.core.errors import JobServerLostError, JobServerRefusedError, OptionsError
from beam_spark_runner.job.client.open_streams import StreamsOfProgram, end_streams
from beam_spark_runner.job.client.submitted import SubmittedPipelineResult
from beam_spark_runner.job.server import api as api_module
from beam_spark_runner.job.streaming_jobs import StreamingJobsStub
from beam_spark_runner.recovery.manifest import epoch_in
from beam_spark_runner.runner import SparkPortableRunner
from tests.cli.programs import Program, lines_of
from tests.harness.test_job_access import Papers, on_localhost, server_with
from tests.harness.test_job_server import CLIENTS, Server, ticks, waits
from tests.unit.job.server.served import request

pytestmark = pytest.mark.grpc

OURS = CLIENTS["SparkPortableRunner"]
CALLS: dict[str, Callable[[Any], Any]] = {
    "watermarks": lambda result: result.watermarks(),
    "a savepoint": lambda result: result.savepoint("/savepoint"),
    "draining": lambda result: result.drain(),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    here = Server(tmp_path_factory.mktemp("server"))
    yield here
    here.program.send(signal.SIGTERM)
    assert here.program.end(60).code == 0


@pytest.mark.slow
def test_a_job_is_watched_saved_and_drained(server: Server, tmp_path: Path) -> None:
    savepoint = tmp_path / "savepoint"
    result = server.submit(ticks(tmp_path), *OURS, "--batch_interval_millis=100")
    began = Timestamp.now() - 3600

    def has_come_so_far() -> bool:
        """Whether the source has been read."""
        read = [step for name, step in result.watermarks().items() if name.endswith("/Process")]
        return any(began < step.output < MAX_TIMESTAMP for step in read)

    assert server.program.wait_until(has_come_so_far)
    for step in result.watermarks().values():
        assert step.output <= step.input <= MAX_TIMESTAMP
    epoch = result.savepoint(str(savepoint))
    assert [each for path in savepoint.iterdir() if (each := epoch_in(path.name, "main"))] == [
        epoch
    ]
    with pytest.raises(JobServerRefusedError, match="there is a savepoint or a checkpoint"):
        result.savepoint(str(savepoint))
    with pytest.raises(
        JobServerRefusedError, match=r"savepoint\(path\): 'relative' must be an absolute path"
    ):
        result.savepoint("relative")
    assert result.drain() in ("RUNNING", "DRAINING")
    assert result.wait_until_finish() == "DRAINED"
    assert {each.output for each in result.watermarks().values()} == {MAX_TIMESTAMP}
    with pytest.raises(JobServerRefusedError, match="has ended; beam-spark-savepoint copies"):
        result.savepoint(str(tmp_path / "another"))


@pytest.mark.slow
def test_any_client_finds_watermarks_among_the_metrics(server: Server, tmp_path: Path) -> None:
    result = server.submit(ticks(tmp_path), *OURS, "--batch_interval_millis=100")

    def output_watermarks() -> dict[str, int]:
        return {
            each.key.step: each.committed.value
            for each in result.metrics().query()["gauges"]
            if each.key.metric.namespace == "beam_spark_runner"
            and each.key.metric.name == "output_watermark"
        }

    assert server.program.wait_until(lambda: bool(output_watermarks()))
    first = min(output_watermarks().values())
    assert server.program.wait_until(lambda: min(output_watermarks().values()) > first)
    now_ms = Timestamp.now().micros // 1000
    assert abs(now_ms - min(output_watermarks().values())) < 3_600_000
    result.drain()
    assert result.wait_until_finish() == "DRAINED"
    assert set(output_watermarks().values()) == {MAX_TIMESTAMP.micros // 1000}


@pytest.mark.slow
def test_a_job_in_batch_has_none_of_it(server: Server, tmp_path: Path) -> None:
    result = server.submit(waits(tmp_path), *OURS)
    server.program.wait_for(tmp_path / "began")
    for wanted, ask in CALLS.items():
        with pytest.raises(
            JobServerRefusedError,
            match=f"{wanted}.* a pipeline that runs in batch is not supported",
        ):
            ask(result)
    (tmp_path / "may end").touch()
    assert result.wait_until_finish() == "DONE"


_CLIENT = """
    from apache_beam.transforms.periodicsequence import PeriodicImpulse

    def tick(_):
        open({folder!r} + "/ticked", "w").close()

    pipeline = beam.Pipeline(argv=OPTIONS)
    pipeline | PeriodicImpulse(fire_interval=0.2) | beam.Map(tick)
    print(pipeline.run().wait_until_finish())
    """


@pytest.mark.slow
def test_sigterm_of_a_client_may_drain(server: Server, tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        _CLIENT.format(folder=str(tmp_path)),
        *(f"--job_endpoint={server.url}", "--drain_on_sigterm"),
        "--batch_interval_millis=5000",  # so that no epoch is too slow
    )
    program.wait_for(tmp_path / "ticked")
    program.send(signal.SIGTERM)
    ended = program.end(120)
    assert (ended.code, ended.out) == (0, "DRAINED\n"), ended.err
    # Beam's SDK harness does not know all options of Beam's own.
    lines = [line for line in lines_of(ended.err) if "Discarding unparseable args" not in line]
    assert lines == []


def streams(pipeline: beam.Pipeline) -> None:
    pipeline | PeriodicImpulse() | beam.Map(print)


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    return Papers(tmp_path_factory.mktemp("papers"))


def test_a_job_that_waits_has_nothing_yet() -> None:
    with server_with("--max_concurrent_jobs=1") as (api, gate):
        first, second = (
            SparkPortableRunner().run_portable_pipeline(
                request(streams).pipeline, PipelineOptions([f"--job_endpoint={api.url}"])
            )
            for _ in range(2)
        )
        gate.wait_for(1)
        for result in (first, second):
            assert result.watermarks() == {}
            with pytest.raises(JobServerRefusedError, match="no epoch has been committed yet"):
                result.savepoint("/savepoint")
        with pytest.raises(OptionsError, match=r"savepoint\(path\): must be a folder"):
            first.savepoint("")


def test_clients_of_all_jobs_that_may_wait_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each follows the states and the messages of its job: these calls last as long as the job."""
    monkeypatch.setattr(api_module, "_MORE_CALLS", 1)
    with server_with("--max_concurrent_jobs=1", "--max_waiting_jobs=3") as (api, gate):
        options = PipelineOptions([f"--job_endpoint={api.url}"])
        results = [
            SparkPortableRunner().run_portable_pipeline(request(streams).pipeline, options)
            for _ in range(4)
        ]
        gate.wait_for(1)
        for result in results:
            assert result.watermarks() == {}


@pytest.mark.parametrize("kinds", [("token",), ("TLS", "certificate", "token")], ids=" and ".join)
def test_what_protects_the_ports_protects_this(kinds: tuple[str, ...], papers: Papers) -> None:
    with server_with(*papers.of_server(*kinds)) as (api, _):
        endpoint = on_localhost(api.url)
        flags = [f"--job_endpoint={endpoint}", *papers.of_client(*kinds)]
        result = SparkPortableRunner().run_portable_pipeline(
            request(streams).pipeline, PipelineOptions(flags)
        )
        assert result.watermarks() == {}
        with pytest.raises(JobServerRefusedError, match="no epoch has been committed yet"):
            result.savepoint("/savepoint")


def test_nobody_asks_without_the_token(papers: Papers) -> None:
    with (
        server_with(*papers.of_server("token")) as (api, _),
        grpc.insecure_channel(api.url) as channel,
    ):
        stub = StreamingJobsStub(channel)
        for ask, request_ in (
            (stub.GetWatermarks, streaming_jobs_pb2.GetWatermarksRequest(job_id="a")),
            (stub.MakeSavepoint, streaming_jobs_pb2.MakeSavepointRequest(job_id="a")),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                ask(request_)
            assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


@contextmanager
def another_server(
    service: beam_job_api_pb2_grpc.JobServiceServicer | None = None,
) -> Iterator[str]:
    """Serve Beam's Job API: by default without any of its calls, as no server of this package."""
    here = grpc.server(futures.ThreadPoolExecutor(2))
    beam_job_api_pb2_grpc.add_JobServiceServicer_to_server(
        service or beam_job_api_pb2_grpc.JobServiceServicer(), here
    )
    port = here.add_insecure_port("127.0.0.1:0")
    here.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        here.stop(None).wait()


def submitted_to(endpoint: str, channel: grpc.Channel) -> SubmittedPipelineResult:
    stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
    result = PipelineResult(stub, "some job", iter(()), iter(()))
    return SubmittedPipelineResult(result, channel, endpoint, drains_on_sigterm=False)


@pytest.mark.parametrize(
    ("wanted", "lack"),
    [
        ("watermarks", "it does not report watermarks"),
        ("a savepoint", "it makes no savepoints"),
        ("draining", "it cannot drain jobs"),
    ],
)
def test_a_server_that_is_another_one_is_named(wanted: str, lack: str) -> None:
    with another_server() as endpoint, grpc.insecure_channel(endpoint) as channel:
        result = submitted_to(endpoint, channel)
        with pytest.raises(JobServerRefusedError) as raised:
            CALLS[wanted](result)
    assert str(raised.value).startswith(f"the job server at {endpoint} refuses: {lack}; only")


@pytest.mark.parametrize("wanted", CALLS)
def test_a_server_that_is_lost_is_named(wanted: str) -> None:
    with another_server() as endpoint:
        pass
    with grpc.insecure_channel(endpoint) as channel:
        result = submitted_to(endpoint, channel)
        with pytest.raises(JobServerLostError, match=f"{endpoint} no longer answers"):
            CALLS[wanted](result)


class _Running(beam_job_api_pb2_grpc.JobServiceServicer):  # type: ignore[misc]
    """One job, which runs until the stream of its states ends."""

    def GetStateStream(self, request: Any, context: Any) -> Iterator[Any]:
        has_ended = threading.Event()
        context.add_callback(has_ended.set)
        yield beam_job_api_pb2.JobStateEvent(state=beam_job_api_pb2.JobState.RUNNING)
        has_ended.wait()


def test_streams_end_before_the_interpreter() -> None:
    with another_server(_Running()) as endpoint, grpc.insecure_channel(endpoint) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(
            grpc.intercept_channel(channel, StreamsOfProgram())
        )
        states = stub.GetStateStream(beam_job_api_pb2.GetJobStateRequest(job_id="some job"))
        assert next(states).state == beam_job_api_pb2.JobState.RUNNING
        assert states.is_active()
        end_streams()
        assert states.code() is grpc.StatusCode.CANCELLED
        assert not states.add_callback(lambda: None)  # gRPC's thread has done with it
        end_streams()  # of none
