"""Jobs of a server that the next server continues."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import OptionsError, PipelineRefusedError
from beam_spark_runner.job.run import recovery
from beam_spark_runner.job.server import jobs as jobs_module
from beam_spark_runner.job.server.api import JobApi
from beam_spark_runner.job.server.job_forms import EndedJob
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.refusals import ServerIsEndingError, UnknownIdError
from beam_spark_runner.job.server.served_job import ServedJob
from beam_spark_runner.job.server.stored_job import StoredJob
from beam_spark_runner.job.server.stored_jobs import StoredJobs
from beam_spark_runner.job.watching.record import StateChange
from beam_spark_runner.options.server_options import ServerConfig
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.manifest import FencedError, fence_name
from tests.harness.processes import wait_for
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.served_jobs import (
    SOON_S,
    VERSIONS,
    Obstacle,
    Server,
    counters,
    names_in,
    serving,
    state_of,
)
from tests.unit.job.server.served import states_of

pytestmark = pytest.mark.grpc


@pytest.fixture
def obstacle(tmp_path: Path) -> Obstacle:
    return Obstacle(tmp_path / "obstacle")


def suspend(server: Server, job: ServedJob, obstacle: Obstacle) -> None:
    """End a server while user code waits."""
    obstacle.wait_for_user()
    ending = threading.Thread(target=server.jobs.end_all, args=(SOON_S,))
    ending.start()
    wait_for(lambda: job.control.is_suspended)
    obstacle.let_through()
    ending.join()


def test_a_job_that_is_suspended_is_continued(tmp_path: Path, obstacle: Obstacle) -> None:
    with serving(tmp_path) as server:
        job = server.submit(obstacle.two_levels)
        suspend(server, job, obstacle)
        assert states_of(job) == ["STOPPED", "STARTING", "RUNNING"]
    assert any(name.endswith(".job") for name in names_in(tmp_path))
    assert obstacle.runs() == 10
    with serving(tmp_path) as server:
        again = server.jobs.job(job.job_id)
        assert state_of(again) == "DONE"
        assert obstacle.runs() == 0
        assert counters(again) == {"first": 10, "second": 3}
        assert again.submitted == job.submitted
        assert names_in(tmp_path) == [f"000000000001-{job.job_id}.ended"]
        assert states_of(again) == [*states_of(job), "STOPPED", "STARTING", "RUNNING", "DONE"]
        # On a busy machine, there may be warnings, too.
        messages = {each.message_text: each for each in again.record.messages.log.events()}
        continues = messages["start 2 of the job continues after 3 of 4 Spark jobs"]
        assert continues.message_id.startswith("2.")


def test_how_a_job_has_ended_is_known_later(tmp_path: Path, obstacle: Obstacle) -> None:
    obstacle.let_through()
    with serving(tmp_path) as server:
        done = server.submit(obstacle.two_levels)
        assert state_of(done) == "DONE"
        obstacle.fail()
        failed = server.submit(obstacle.two_levels)
        assert state_of(failed) == "FAILED"
    with serving(tmp_path) as server:
        assert [job.job_id for job in server.jobs.all()] == [done.job_id, failed.job_id]
        again = server.jobs.job(done.job_id)
        assert again.has_ended
        assert states_of(again) == states_of(done) == ["STOPPED", "STARTING", "RUNNING", "DONE"]
        assert again.metrics() == done.metrics()
        assert again.options == done.options
        again = server.jobs.job(failed.job_id)
        (reason,) = again.record.messages.log.events()
        assert "an obstacle" in reason.message_text
        assert states_of(again) == ["STOPPED", "STARTING", "RUNNING", "FAILED"]


def test_jobs_continue_in_their_order(tmp_path: Path, obstacle: Obstacle) -> None:
    with serving(tmp_path) as server:
        jobs = [server.submit(obstacle.two_levels) for _ in range(3)]
        obstacle.wait_for_user()
        obstacle.let_through()
        wait_for(lambda: jobs[0].has_ended)
    unfinished = [job.job_id for job in jobs if not job.record.has_last_state]
    with serving(tmp_path) as server:
        later = server.submit(obstacle.two_levels)
        assert [job.job_id for job in server.jobs.all()] == [
            *(job.job_id for job in jobs),
            later.job_id,
        ]
        again = [server.jobs.job(id_) for id_ in [*unfinished, later.job_id]]
        assert [state_of(job) for job in again] == ["DONE"] * len(again)
        began = [
            next(s.at_s for s in j.record.states.events() if s.state == "RUNNING") for j in again
        ]
        assert began == sorted(began)


def test_run_may_be_called_again(tmp_path: Path, obstacle: Obstacle) -> None:
    obstacle.let_through()
    with serving(tmp_path) as server:
        id_ = server.prepare(obstacle.two_levels)
        job_id = server.jobs.run(id_)
        assert server.jobs.run(id_) == job_id
        assert state_of(server.jobs.job(job_id)) == "DONE"
    with serving(tmp_path) as server:
        assert server.jobs.run(id_) == job_id
        with pytest.raises(UnknownIdError):
            server.jobs.run("another")


def test_a_cancelled_job_stays_cancelled(tmp_path: Path, obstacle: Obstacle) -> None:
    with serving(tmp_path) as server:
        running, waiting = server.submit(obstacle.two_levels), server.submit(obstacle.two_levels)
        obstacle.wait_for_user()
        server.jobs.cancel(waiting.job_id)
        server.jobs.cancel(running.job_id)
        # Both ends are stored already, whatever user code does.
        assert sum(name.endswith(".ended") for name in names_in(tmp_path)) == 2
        obstacle.let_through()
        assert (state_of(running), state_of(waiting)) == ("CANCELLED", "CANCELLED")
    assert [name.rpartition(".")[2] for name in names_in(tmp_path)] == ["ended", "ended"]
    with serving(tmp_path) as server:
        assert [job.record.state for job in server.jobs.all()] == ["CANCELLED", "CANCELLED"]


def test_a_job_continues_in_the_next_spark_application(tmp_path: Path, obstacle: Obstacle) -> None:
    with serving(tmp_path) as server:
        job = server.submit(obstacle.two_levels)
        obstacle.wait_for_user()
        assert obstacle.runs() == 10
        obstacle.fail()
        server.sessions[0].has_lost_spark = True
        server.on_open = lambda: obstacle.fail(fails=False)
        obstacle.let_through()
        assert state_of(job) == "DONE"
        assert len(server.sessions) == 2
        assert obstacle.runs() == 0
        assert counters(job) == {"first": 10, "second": 3}
        texts = [each.message_text for each in job.record.messages.log.events()]
        assert any("the Spark application has ended" in text for text in texts)


def test_other_versions_leave_a_job_alone(tmp_path: Path, obstacle: Obstacle) -> None:
    with serving(tmp_path) as server:
        job = server.submit(obstacle.two_levels)
        suspend(server, job, obstacle)
    before = names_in(tmp_path)
    with serving(tmp_path, versions={"this package": "2"}) as server:
        refused = server.jobs.job(job.job_id)
        assert state_of(refused) == "FAILED"
        (reason,) = refused.record.messages.log.events()
        assert "this package: was 1, is 2" in reason.message_text
    assert names_in(tmp_path) == before
    with serving(tmp_path) as server:
        assert state_of(server.jobs.job(job.job_id)) == "DONE"


def test_a_job_that_ends_its_servers_is_given_up(tmp_path: Path, obstacle: Obstacle) -> None:
    with serving(tmp_path) as server:
        job = server.submit(obstacle.two_levels)
        suspend(server, job, obstacle)
    for tries in (1, 2, 3):  # as if the server had died each time
        (tmp_path / "jobs" / f"000000000001-{job.job_id}.try-{tries}").touch()
    with serving(tmp_path) as server:
        again = server.jobs.job(job.job_id)
        assert state_of(again) == "FAILED"
        (reason,) = again.record.messages.log.events()
        assert "3 starts of this job have ended at the same place" in reason.message_text
    assert names_in(tmp_path) == [f"000000000001-{job.job_id}.ended"]


def test_a_job_that_may_have_ended_its_servers_runs_alone(tmp_path: Path) -> None:
    def impulse(p: beam.Pipeline) -> None:
        p | beam.Impulse()

    may_open = threading.Event()
    with serving(tmp_path, jobs=2, before_open=may_open.wait) as server:
        jobs = [server.submit(impulse) for _ in range(3)]
        ending = threading.Thread(target=server.jobs.end_all, args=(SOON_S,))
        ending.start()
        wait_for(lambda: all(job.control.is_suspended or job.has_ended for job in jobs))
        may_open.set()
        ending.join()
    for job in jobs[:2]:  # as if the server had died twice; the third one has waited
        folder = tmp_path / "jobs" / job.job_id
        for fence in (2, 3):
            (folder / fence_name(fence)).write_text(json.dumps({"commit": 0, "finished": 0}))
    may_open.clear()
    with serving(tmp_path, jobs=2, before_open=may_open.wait) as server:
        serving_threads = [each.name for each in threading.enumerate() if "beam-serve" in each.name]
        assert serving_threads == [f"beam-serve-{jobs[0].job_id}"]
        may_open.set()
        assert [state_of(server.jobs.job(job.job_id)) for job in jobs] == ["DONE"] * 3


def test_a_later_server_takes_the_jobs_over(tmp_path: Path, obstacle: Obstacle) -> None:
    with serving(tmp_path) as older:
        running, waiting = older.submit(obstacle.two_levels), older.submit(obstacle.two_levels)
        obstacle.wait_for_user()
        prepared = older.prepare(obstacle.two_levels)
        with serving(tmp_path) as newer:
            obstacle.let_through()
            for job in (running, waiting):
                assert job.wait(SOON_S)
                # If the newer server was faster, the older one shows how the job has ended there.
                assert not job.record.has_last_state or job.record.state == "DONE"
                assert state_of(newer.jobs.job(job.job_id)) == "DONE"
                assert counters(newer.jobs.job(job.job_id)) == {"first": 10, "second": 3}
            with pytest.raises(FencedError):
                older.jobs.run(prepared)
            assert len(newer.jobs.all()) == 2
    assert [name.rpartition(".")[2] for name in names_in(tmp_path)] == ["ended", "ended"]


def test_a_fenced_start_does_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it notices that a later server has taken the job over."""

    def claim(*_: Any, **__: Any) -> Any:
        newer = StoredJobs(str(tmp_path / "jobs"), VERSIONS)
        newer._fence.claim()
        raise FencedError(1, 2)

    with serving(tmp_path) as server:
        monkeypatch.setattr(recovery, "BatchStart", claim)
        job = server.submit(lambda p: p | beam.Impulse())
        assert job.wait(SOON_S)
        assert not job.record.has_last_state
    monkeypatch.undo()
    with serving(tmp_path) as server:
        assert state_of(server.jobs.job(job.job_id)) == "DONE"


def test_what_another_server_has_ended_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = BatchStart

    def claim(*arguments: Any, **named: Any) -> BatchStart:
        states = (StateChange("RUNNING", 1.0), StateChange("FAILED", 2.0))
        ended = EndedJob(states=states, error="the other's reason", coded_metrics=b"")
        assert isinstance(job.place, StoredJob)
        job.place.store_end(job.submitted, ended)
        return real(*arguments, **named)

    with serving(tmp_path) as server:
        monkeypatch.setattr(recovery, "BatchStart", claim)
        id_ = server.prepare(lambda p: p | beam.Impulse())
        opened = threading.Event()
        server.before_open = opened.wait
        job = server.jobs.job(server.jobs.run(id_))
        opened.set()
        assert state_of(job) == "FAILED"
        (reason,) = job.record.messages.log.events()
        assert reason.message_text == "the other's reason"
    assert [name.rpartition(".")[2] for name in names_in(tmp_path)] == ["ended"]


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_server_that_ends_while_run_is_called_cancels_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_stored: bool
) -> None:
    arrived, may_go_on = threading.Event(), threading.Event()
    real = ServedJob.store

    def store(job: ServedJob, jobs: StoredJobs) -> None:
        if is_stored:
            real(job, jobs)
        arrived.set()
        may_go_on.wait(SOON_S)
        if not is_stored:
            real(job, jobs)

    monkeypatch.setattr(ServedJob, "store", store)
    with serving(tmp_path) as server:
        id_ = server.prepare(lambda p: p | beam.Impulse())
        with ThreadPoolExecutor(2) as threads:
            answer = threads.submit(server.jobs.run, id_)
            assert arrived.wait(SOON_S)
            ending = threads.submit(server.jobs.end_all, SOON_S)
            (job,) = server.jobs.all()
            wait_for(lambda: job.control.is_suspended)
            may_go_on.set()
            with pytest.raises(ServerIsEndingError):
                answer.result()
            assert ending.result()
    monkeypatch.undo()
    with serving(tmp_path) as server:
        assert state_of(server.jobs.job(server.jobs.run(id_))) == "DONE"


def test_a_server_that_does_not_start_claims_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        config = ServerConfig(
            jobs_dir=str(tmp_path / "jobs"), job_port=taken.getsockname()[1], artifact_port=0
        )
        jobs = Jobs(config, lambda *_: None, VERSIONS)  # type: ignore[arg-type]
        with pytest.raises(OptionsError, match="is the port in use"):
            JobApi(config, jobs, before_start=jobs.resume)
        jobs.delete_staged_files()
    assert list((tmp_path / "jobs").iterdir()) == []


def test_what_is_left_of_a_preparation_is_removed(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        stored = server.jobs._stored_jobs.new_job()  # type: ignore[union-attr]
        stored.expect_files()
        with stored.files.receive() as file:
            file.write(b"content")
            file.close()
            stored.files.store(file.name, "name")
    assert len(names_in(tmp_path)) == 4
    # As a server leaves them that is killed while it creates a file.
    for name in ("000000000002-0123456789ab.job", "000000000001-0123456789ab.ended"):
        (tmp_path / "jobs" / f".{name}.0123cdef").touch()
    (tmp_path / "jobs" / ".000000000007.server.0123cdef").touch()
    with serving(tmp_path):
        assert not list((tmp_path / "jobs").glob(".*"))
        assert names_in(tmp_path) == []


def test_a_submission_comes_before_its_folder(tmp_path: Path, obstacle: Obstacle) -> None:
    """A folder that no submission names would stay for good."""
    server = Server(tmp_path)
    id_ = server.prepare(obstacle.two_levels)
    with Deaths(tmp_path / "jobs", 0, is_done=True).striking(), pytest.raises(Died):
        server.jobs.run(id_)
    (name,) = names_in(tmp_path)
    assert name.endswith(".job")


def test_old_ends_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MAX_ENDED", 2)
    with serving(tmp_path) as server:
        jobs = [server.submit(lambda p: p | beam.Impulse()) for _ in range(3)]
        assert [state_of(job) for job in jobs] == ["DONE"] * 3
        wait_for(lambda: len(names_in(tmp_path)) == 2)
    with serving(tmp_path) as server:
        assert [job.job_id for job in server.jobs.all()] == [job.job_id for job in jobs[1:]]


def test_a_pipeline_that_cannot_be_compiled_is_not_stored(
    tmp_path: Path, obstacle: Obstacle
) -> None:
    with serving(tmp_path) as server:
        made = server.jobs._preparations[id_ := server.prepare(obstacle.two_levels)]
        coded = made.coded_pipeline.replace(b"embedded_python:v1", b"embedded_loopy:v1 ")
        object.__setattr__(made, "coded_pipeline", coded)
        with pytest.raises(PipelineRefusedError):
            server.jobs.run(id_)
        assert names_in(tmp_path) == []
        assert server.jobs.all() == []
