"""Jobs of a server that the next server continues."""

import threading
from pathlib import Path

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import PipelineRefusedError
from beam_spark_runner.job.server import jobs as jobs_module
from beam_spark_runner.job.server.refusals import UnknownIdError
from beam_spark_runner.job.server.served_job import ServedJob
from beam_spark_runner.recovery.manifest import FencedError
from tests.harness.processes import wait_for
from tests.pipelines.served_jobs import (
    SOON_S,
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
    ending = threading.Thread(target=server.jobs.end, args=(SOON_S,))
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
        (said,) = again.record.messages.log.events()
        assert said.message_id == "2.1"
        assert said.message_text == "start 2 of the job continues after 3 of 4 Spark jobs"


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


def test_a_later_server_takes_the_jobs_over(tmp_path: Path, obstacle: Obstacle) -> None:
    with serving(tmp_path) as older:
        running, waiting = older.submit(obstacle.two_levels), older.submit(obstacle.two_levels)
        obstacle.wait_for_user()
        prepared = older.prepare(obstacle.two_levels)
        with serving(tmp_path) as newer:
            obstacle.let_through()
            for job in (running, waiting):
                assert job.wait(SOON_S)
                assert not job.record.has_last_state
                assert state_of(newer.jobs.job(job.job_id)) == "DONE"
                assert counters(newer.jobs.job(job.job_id)) == {"first": 10, "second": 3}
            with pytest.raises(FencedError):
                older.jobs.run(prepared)
            assert len(newer.jobs.all()) == 2
    assert [name.rpartition(".")[2] for name in names_in(tmp_path)] == ["ended", "ended"]


def test_what_is_left_of_a_preparation_is_removed(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        stored = server.jobs._stored.new()  # type: ignore[union-attr]
        stored.expect_files()
        with stored.files.receive() as file:
            file.write(b"content")
            file.close()
            stored.files.keep(file.name, "name")
    assert len(names_in(tmp_path)) == 4
    with serving(tmp_path):
        assert names_in(tmp_path) == []


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
        made = server.jobs._prepared[id_ := server.prepare(obstacle.two_levels)]
        coded = made.coded_pipeline.replace(b"embedded_python:v1", b"embedded_loopy:v1 ")
        object.__setattr__(made, "coded_pipeline", coded)
        with pytest.raises(PipelineRefusedError):
            server.jobs.run(id_)
        assert names_in(tmp_path) == []
        assert server.jobs.all() == []
