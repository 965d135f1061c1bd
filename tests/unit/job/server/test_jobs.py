"""The jobs of a server: who waits, who runs, and what is known of them afterwards."""

import dataclasses
import re
import threading
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    OptionsError,
    PipelineRefusedError,
    UnsupportedFeatureError,
)
from beam_spark_runner.job.server import jobs as jobs_module
from beam_spark_runner.job.server.refusals import (
    NotStagedError,
    ServerIsEndingError,
    TooManyJobsError,
    UnknownIdError,
)
from beam_spark_runner.job.server.served_job import ServedJob
from beam_spark_runner.options.server_options import ServerConfig
from tests.unit.job.server.served import SOON_S, request, served, states_of
from tests.unit.job.server.test_staging import Client, artifact


def config(folder: Path, jobs: int = 1) -> ServerConfig:
    return ServerConfig(artifacts_dir=str(folder), max_concurrent_jobs=jobs)


def test_jobs_wait_for_their_turn(tmp_path: Path) -> None:
    with served(config(tmp_path, jobs=2)) as (jobs, gate):
        ids = [jobs.run(jobs.prepare(request())) for _ in range(4)]
        gate.wait_for(2)
        states = [jobs.job(id_).record.state for id_ in ids]
        assert states == ["STARTING", "STARTING", "STOPPED", "STOPPED"]
        assert sorted(gate.pools) == ["beam-0", "beam-1"]
        gate.let_through(1)
        gate.wait_for(1)
        assert jobs.job(ids[2]).record.state == "STARTING"
        gate.let_through(3)
        for id_ in ids:
            assert jobs.job(id_).wait(SOON_S)
            assert states_of(jobs.job(id_)) == ["STOPPED", "STARTING", "FAILED"]
        assert set(gate.pools) == {"beam-0", "beam-1"}


def test_why_a_job_does_not_begin_is_in_its_messages(tmp_path: Path) -> None:
    with served(config(tmp_path)) as (jobs, gate):
        job = jobs.job(jobs.run(jobs.prepare(request())))
        gate.let_through(1)
        assert job.wait(SOON_S)
        texts = [each.message_text for each in job.record.messages.log.events()]
        assert texts == ["there is no Spark.\nStart one."]
        assert job.metrics().ByteSize() == 0


def test_a_job_that_waits_is_cancelled_at_once(tmp_path: Path) -> None:
    with served(config(tmp_path)) as (jobs, gate):
        first, second, third = (jobs.run(jobs.prepare(request())) for _ in range(3))
        gate.wait_for(1)
        assert jobs.cancel(second).has_ended
        assert states_of(jobs.job(second)) == ["STOPPED", "CANCELLED"]
        gate.let_through(2)
        for id_ in (first, third):
            assert jobs.job(id_).wait(SOON_S)
        assert jobs.cancel(second).record.state == "CANCELLED"


def test_only_so_many_jobs_wait(tmp_path: Path) -> None:
    few = dataclasses.replace(config(tmp_path), max_waiting_jobs=2)
    with served(few) as (jobs, gate):
        running = jobs.run(jobs.prepare(request()))
        gate.wait_for(1)
        jobs.run(jobs.prepare(request()))  # waits
        prepared = jobs.prepare(request())
        for _ in range(2):
            with pytest.raises(TooManyJobsError, match=r"2 jobs wait already.*--max_waiting_jobs"):
                jobs.prepare(request())
        last = jobs.run(prepared)
        gate.let_through(1)
        assert jobs.job(running).wait(SOON_S)
        gate.wait_for(1)
        jobs.prepare(request())
        gate.let_through(2)
        assert jobs.job(last).wait(SOON_S)


def test_a_preparation_runs_once(tmp_path: Path) -> None:
    with served(config(tmp_path)) as (jobs, _):
        id_ = jobs.prepare(request())
        job = jobs.run(id_)
        assert job != id_
        assert jobs.run(id_) == job
        assert len(jobs.all()) == 1
        with pytest.raises(UnknownIdError):
            jobs.files_of(id_)
        with pytest.raises(UnknownIdError):
            jobs.job(id_)


def test_files_are_staged_before_and_gone_after(tmp_path: Path) -> None:
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.dependencies.append(artifact("a.txt", path="/etc/hostname"))
    submitted = wanted.pipeline.SerializeToString(deterministic=True)
    with served(config(tmp_path)) as (jobs, gate):
        id_ = jobs.prepare(wanted)
        with pytest.raises(NotStagedError, match="artifact_staging_endpoint"):
            jobs.run(id_)
        Client({"/etc/hostname": b"content"}).stage(jobs.files_of(id_))
        job = jobs.job(jobs.run(id_))
        gate.wait_for(1)
        assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == [b"content"]
        gate.let_through(1)
        assert job.wait(SOON_S)
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
        pipeline = beam_runner_api_pb2.Pipeline.FromString(job.submitted.coded_pipeline)
        assert pipeline.SerializeToString(deterministic=True) == submitted


@pytest.mark.parametrize("name", ["../a.txt", "a\0b"])
def test_names_that_are_no_file_names_are_refused(name: str, tmp_path: Path) -> None:
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.dependencies.append(artifact(name))
    with served(config(tmp_path)) as (jobs, _):
        id_ = jobs.prepare(wanted)
        Client({"there": b"content"}).stage(jobs.files_of(id_))
        with pytest.raises(UnsupportedFeatureError, match=re.escape(f"called {name!r}")):
            jobs.run(id_)
        assert jobs.all() == []
        assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("urn", ["beam:env:embedded_python_loopback:v1", "beam:env:odd:v1"])
def test_environments_that_cannot_be_had_are_refused(urn: str, tmp_path: Path) -> None:
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.urn = urn
    with (
        served(config(tmp_path)) as (jobs, _),
        pytest.raises((UnsupportedFeatureError, PipelineRefusedError)),
    ):
        jobs.run(jobs.prepare(wanted))


def test_code_of_clients_never_shares_a_process_with_other_code(tmp_path: Path) -> None:
    with served(config(tmp_path)) as (jobs, gate):
        job = jobs.job(jobs.run(jobs.prepare(request())))
        gate.wait_for(1)
        assert job._prepared is not None
        environments = job._prepared.plan.graph.environments.values()
        assert {each.urn for each in environments} == {urns.ENVIRONMENT_PROCESS}
        assert job._prepared.working_folder is None


def test_options_are_checked_first(tmp_path: Path) -> None:
    wanted = request()
    wanted.pipeline_options.update({"beam:option:restart:v1": "perhaps"})
    with served(config(tmp_path)) as (jobs, _), pytest.raises(OptionsError, match="restart"):
        jobs.prepare(wanted)


def test_options_that_only_sdks_know_reach_them(tmp_path: Path) -> None:
    wanted = request()
    wanted.pipeline_options.update({"beam:option:go_options:v1": {"x": "y"}})
    with served(config(tmp_path)) as (jobs, gate):
        job = jobs.job(jobs.run(jobs.prepare(wanted)))
        gate.wait_for(1)
        assert job._prepared is not None
        assert '"beam:option:go_options:v1": {"x": "y"}' in job._prepared.options_json


def test_the_end_of_a_server(tmp_path: Path) -> None:
    with served(config(tmp_path)) as (jobs, gate):
        prepared = jobs.prepare(request())
        first, second = (jobs.run(jobs.prepare(request())) for _ in range(2))
        gate.wait_for(1)
        assert not jobs.end_all(0.0)
        assert jobs.job(second).record.state == "CANCELLED"
        with pytest.raises(ServerIsEndingError):
            jobs.prepare(request())
        with pytest.raises(ServerIsEndingError):
            jobs.run(prepared)
        gate.let_through(1)
        assert jobs.end_all(SOON_S)
        assert jobs.job(first).has_ended
        jobs.delete_staged_files()
        assert list(tmp_path.iterdir()) == []


def test_what_clients_abandon_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = request()
    (environment,) = wanted.pipeline.components.environments.values()
    environment.dependencies.append(artifact("a.txt", path="/etc/hostname"))
    with served(config(tmp_path)) as (jobs, _):
        abandoned, staging = jobs.prepare(wanted), jobs.prepare(wanted)
        for id_ in (abandoned, staging):
            Client({"/etc/hostname": b"content"}).stage(jobs.files_of(id_))
        jobs.drop_abandoned()
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 2
        jobs.files_of(staging).touched_s += 1000
        monkeypatch.setattr(jobs_module, "_PREPARED_FOR_S", -500.0)
        jobs.drop_abandoned()
        assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1
        with pytest.raises(UnknownIdError):
            jobs.run(abandoned)
        jobs.run(staging)


def test_only_the_latest_ended_jobs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "MAX_ENDED", 2)
    with served(config(tmp_path)) as (jobs, gate):
        gate.let_through(4)
        ids = [jobs.run(jobs.prepare(request())) for _ in range(4)]
        waiting = jobs.run(jobs.prepare(request()))  # begins once the last of them is done
        gate.wait_for(5)
        assert [each.job_id for each in jobs.all()] == [*ids[2:], waiting]
        with pytest.raises(UnknownIdError, match=ids[0]):
            jobs.job(ids[0])


def test_a_pipeline_that_is_refused_is_no_job(tmp_path: Path) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([1]) | beam.Map(str)

    wanted = request(build)
    for transform in wanted.pipeline.components.transforms.values():
        if transform.spec.urn == "beam:transform:pardo:v1":
            transform.spec.urn = "beam:transform:odd:v1"
    with served(config(tmp_path)) as (jobs, _):
        with pytest.raises(PipelineRefusedError, match="odd"):
            jobs.run(jobs.prepare(wanted))
        assert jobs.all() == []


def test_a_job_that_ran_long_is_known_after_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "MAX_ENDED", 3)
    with served(config(tmp_path)) as (jobs, gate):
        long = jobs.run(jobs.prepare(request()))
        gate.wait_for(1)
        dropped = [jobs.run(jobs.prepare(request())) for _ in range(5)]
        for id_ in dropped:
            jobs.cancel(id_)
        assert [each.job_id for each in jobs.all()] == [long, *dropped[2:]]
        gate.let_through(1)
        last = jobs.run(jobs.prepare(request()))
        gate.wait_for(1)  # the turn of the last comes after the end of the long one
        assert [each.job_id for each in jobs.all()] == [long, *dropped[3:], last]
        assert states_of(jobs.job(long))[-1] == "FAILED"


def test_a_server_ends_though_it_forgets_jobs_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "MAX_ENDED", 1)
    with served(config(tmp_path)) as (jobs, gate):
        ids = [jobs.run(jobs.prepare(request())) for _ in range(3)]
        gate.wait_for(1)
        jobs.cancel(ids[2])
        assert not jobs.end_all(0.0)
        assert [each.job_id for each in jobs.all()] == ids[:2]


def test_ended_jobs_have_a_limit_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MAX_BYTES_OF_ENDED", 1)
    with served(config(tmp_path)) as (jobs, gate):
        gate.let_through(2)
        ids = [jobs.run(jobs.prepare(request())) for _ in range(2)]
        waiting = jobs.run(jobs.prepare(request()))
        gate.wait_for(3)
        assert [each.job_id for each in jobs.all()] == [ids[1], waiting]


def test_a_job_that_has_no_thread_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Thread(threading.Thread):
        def start(self) -> None:
            if "beam-serve" in self.name:
                raise RuntimeError("can't start new thread")
            super().start()

    with served(config(tmp_path)) as (jobs, gate):
        with monkeypatch.context() as no_threads:
            no_threads.setattr(jobs_module.threading, "Thread", Thread)  # type: ignore[attr-defined]
            job = jobs.job(jobs.run(jobs.prepare(request())))
        assert states_of(job) == ["STOPPED", "FAILED"]
        (message,) = job.record.messages.log.events()
        assert message.message_text == "can't start new thread"
        gate.let_through(1)  # the pool is free again
        assert jobs.job(jobs.run(jobs.prepare(request()))).wait(SOON_S)


def test_a_job_ends_whatever_its_thread_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(ServedJob, "run", fail)
    with served(config(tmp_path)) as (jobs, _):
        job = jobs.job(jobs.run(jobs.prepare(request())))
        assert states_of(job) == ["STOPPED", "FAILED"]
        (reason,) = job.record.messages.log.events()
        assert reason.message_text == "a defect"
