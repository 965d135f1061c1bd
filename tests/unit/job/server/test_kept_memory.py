"""What waiting and ended jobs occupy of the server's memory is counted, and limited."""

import dataclasses
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_job_api_pb2, metrics_pb2

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.server import jobs as jobs_module
from beam_spark_runner.job.server import served_job as served_job_module
from beam_spark_runner.job.server.refusals import TooManyJobsError, code_of
from beam_spark_runner.options.server_options import ServerConfig, parse_server_options
from tests.unit.job.server.served import SOON_S, Gate, request, served
from tests.unit.job.server.test_staging import artifact

SIZE = 100_000  # bytes, much more than the rest of a pipeline


def config(folder: Path, **settings: Any) -> ServerConfig:
    return ServerConfig(artifacts_dir=str(folder), max_concurrent_jobs=1, **settings)


def with_options(size: int) -> beam_job_api_pb2.PrepareJobRequest:
    wanted = request()
    wanted.pipeline_options.update({"beam:option:notes:v1": "x" * size})
    return wanted


def with_pipeline(size: int) -> beam_job_api_pb2.PrepareJobRequest:
    wanted = request()
    wanted.pipeline.components.transforms["large"].spec.payload = b"x" * size
    return wanted


def with_name(size: int) -> beam_job_api_pb2.PrepareJobRequest:
    return request(name="n" * size)


def with_step_names(size: int) -> beam_job_api_pb2.PrepareJobRequest:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([1]) | "s" * size >> beam.Map(str)

    return request(build)


@pytest.mark.parametrize("make", [with_options, with_pipeline, with_name, with_step_names])
def test_all_that_a_client_sends_is_counted_after_the_end(make: Any, tmp_path: Path) -> None:
    with served(config(tmp_path)) as (jobs, gate):
        gate.let_through(1)
        job = jobs.job(jobs.run(jobs.prepare(make(SIZE))))
        assert job.wait(SOON_S)
        assert SIZE < job.kept_bytes < 5 * SIZE


def test_messages_are_counted_with_their_objects(tmp_path: Path) -> None:
    with served(config(tmp_path)) as (jobs, gate):
        gate.let_through(1)
        job = jobs.job(jobs.run(jobs.prepare(request())))
        assert job.wait(SOON_S)
        before = job.kept_bytes
        for _ in range(1_000):
            job.record.messages.inform("")
        assert job.kept_bytes - before > 300_000


def test_metrics_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finished:
        watch = beam_job_api_pb2  # only passed on
        start = wait = staticmethod(lambda: None)

        def __init__(self, *_: Any, **__: Any) -> None:
            self.watch = self

        @staticmethod
        def watermarks() -> dict[str, Any]:
            return {}

    infos = [metrics_pb2.MonitoringInfo(urn="u" * 1_000) for _ in range(100)]
    monkeypatch.setattr(served_job_module, "Job", Finished)
    monkeypatch.setattr(served_job_module, "folder_of", lambda *_: None)
    monkeypatch.setattr(
        served_job_module,
        "_metrics_of",
        lambda _: beam_job_api_pb2.MetricResults(committed=infos),
    )

    class Session(Gate):
        def __call__(self, *_: Any) -> Any:
            return self

        def close(self) -> None:
            pass

    jobs = jobs_module.Jobs(config(tmp_path), Session())
    job = jobs.job(jobs.run(jobs.prepare(request())))
    assert job.wait(SOON_S)
    assert job.kept_bytes > SIZE
    assert list(job.metrics().committed) == infos
    jobs.delete_staged_files()


def test_ended_jobs_with_large_options_are_dropped_beyond_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "MAX_BYTES_OF_ENDED", 5 * SIZE)
    with served(config(tmp_path)) as (jobs, gate):
        gate.let_through(8)
        for _ in range(8):
            assert jobs.job(jobs.run(jobs.prepare(with_options(2 * SIZE)))).wait(SOON_S)
        jobs.run(jobs.prepare(request()))
        gate.wait_for(9)  # the last has begun, so that the one before has been counted
        ended = [each for each in jobs.all() if each.has_ended]
        assert len(ended) == 2
        assert sum(each.kept_bytes for each in ended) <= 5 * SIZE


def test_what_is_kept_is_what_the_client_sent(tmp_path: Path) -> None:
    wanted = with_options(10)
    with served(config(tmp_path)) as (jobs, gate):
        gate.let_through(1)
        job = jobs.job(jobs.run(jobs.prepare(wanted)))
        assert job.wait(SOON_S)
        assert job.options == wanted.pipeline_options


@pytest.mark.parametrize("make", [with_options, with_pipeline, with_name])
def test_waiting_jobs_and_preparations_share_a_limit_of_memory(make: Any, tmp_path: Path) -> None:
    with served(config(tmp_path, max_waiting_bytes=11 * SIZE)) as (jobs, gate):
        running = jobs.run(jobs.prepare(make(SIZE)))
        gate.wait_for(1)
        queued = jobs.run(jobs.prepare(make(SIZE)))
        jobs.prepare(make(SIZE))
        jobs.prepare(make(SIZE))
        for _ in range(2):
            with pytest.raises(
                TooManyJobsError, match=r"3 jobs.*that --max_waiting_bytes .*try again"
            ) as raised:
                jobs.prepare(make(SIZE))
        assert code_of(raised.value).name == "RESOURCE_EXHAUSTED"
        jobs.cancel(queued)
        jobs.prepare(make(SIZE))
        gate.let_through(1)
        assert jobs.job(running).wait(SOON_S)


def test_a_pipeline_that_never_fits_is_told_so(tmp_path: Path) -> None:
    with (
        served(config(tmp_path, max_waiting_bytes=2 * SIZE)) as (jobs, _),
        pytest.raises(TooManyJobsError, match=r"--max_waiting_bytes of the job server is 200000"),
    ):
        jobs.prepare(with_options(SIZE))


def test_the_limit_is_an_option() -> None:
    assert parse_server_options(["--max_waiting_bytes=5"]).max_waiting_bytes == 5
    assert ServerConfig().max_waiting_bytes == 1 << 30  # for the largest message, three times
    with pytest.raises(OptionsError, match="max_waiting_bytes"):
        parse_server_options(["--max_waiting_bytes=0"])


def test_a_preparation_keeps_no_part_of_the_request(tmp_path: Path) -> None:
    """A part of a message of protobuf keeps the memory of all of it."""
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.dependencies.append(artifact("a.txt"))
    with served(config(tmp_path)) as (jobs, _):
        id_ = jobs.prepare(wanted)
        prepared = jobs._preparations[id_]
        kept = [getattr(prepared, each.name) for each in dataclasses.fields(prepared)]
        assert all(isinstance(each, (str, bytes, int)) for each in kept[:3])
        (copies,) = prepared.files._dependencies.values()
        assert copies == list(environment.dependencies)
        assert copies[0] is not environment.dependencies[0]
