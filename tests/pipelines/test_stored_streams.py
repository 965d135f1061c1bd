"""Streams of a server that the next server continues, without an option of the client's."""

import random
import shutil
import threading
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Events

from beam_spark_runner.job.server.served_job import ServedJob
from beam_spark_runner.recovery.manifest import fence_name
from tests.harness.processes import wait_for
from tests.pipelines.dying_drivers import Deaths, Died
from tests.pipelines.served_jobs import (
    SOON_S,
    Obstacle,
    Server,
    counters,
    names_in,
    serving,
    state_of,
)
from tests.pipelines.served_streams import Numbers
from tests.unit.job.server.served import states_of

pytestmark = [
    pytest.mark.grpc,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),  # they die
]

QUICK = {"batch_interval_millis": 20, "batch_job_recovery": False}


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    return Numbers(tmp_path / "numbers")


def submit(server: Server, numbers: Numbers, **options: Any) -> ServedJob:
    return server.submit(numbers.build, **{**QUICK, **options})


def commits_of(folder: Path) -> int:
    """Return how many manifests are in a checkpoint."""
    return len(list(folder.rglob("*.manifest")))


def begin(server: Server, numbers: Numbers, folder: Path, **options: Any) -> ServedJob:
    """Submit the stream, and wait until it has committed some numbers."""
    numbers.let_through(20)
    job = submit(server, numbers, **options)
    numbers.wait_for_notes(20)
    wait_for(lambda: commits_of(place_of(folder, job, **options)) > 1)
    return job


def place_of(folder: Path, job: ServedJob, **options: Any) -> Path:
    """Return where the epochs of a job are."""
    default = folder / "jobs" / "checkpoints" / job.job_id
    return Path(options.get("checkpoint_dir", default))


def check_end(numbers: Numbers, job: ServedJob) -> None:
    assert state_of(job) == "DONE"
    numbers.check()
    assert counters(job)["seen"] == numbers.most


@pytest.mark.parametrize("names_folder", [False, True])
def test_a_stream_that_is_suspended_is_continued(
    tmp_path: Path, numbers: Numbers, *, names_folder: bool
) -> None:
    options = {"checkpoint_dir": str(tmp_path / "checkpoint")} if names_folder else {}
    with serving(tmp_path) as server:
        job = begin(server, numbers, tmp_path, **options)
    assert states_of(job) == ["STOPPED", "STARTING", "RUNNING"]
    seen = len(numbers.notes())
    with serving(tmp_path) as server:
        again = server.jobs.job(job.job_id)
        numbers.let_through()
        check_end(numbers, again)
        assert states_of(again) == [*states_of(job), "STOPPED", "STARTING", "RUNNING", "DONE"]
        texts = [each.message_text for each in again.record.messages.log.events()]
        assert any("start 2 of the job continues after epoch" in text for text in texts)
    assert len(numbers.notes()) - seen <= numbers.most  # it has not begun again
    assert numbers.notes()[seen] not in ("0", "1", "2")
    left = [f"000000000001-{job.job_id}.ended", *(["checkpoints"] if not names_folder else [])]
    assert names_in(tmp_path) == left
    assert bool(commits_of(place_of(tmp_path, job, **options))) is names_folder


def test_a_stream_is_continued_after_kills_at_any_change(tmp_path: Path) -> None:
    """A few moments; what dies may be the server, an epoch's commit or the end of the job."""
    changes = dies_and_continues(tmp_path / "undisturbed", None, is_done=False)
    chance = random.Random(9)
    for at in sorted(chance.sample(range(changes), 2)):
        dies_and_continues(tmp_path / str(at), at, is_done=chance.random() < 0.5)


@pytest.mark.rare
@pytest.mark.timeout(3600)
def test_a_stream_is_continued_after_kills_at_all_changes(tmp_path: Path) -> None:
    changes = dies_and_continues(tmp_path / "undisturbed", None, is_done=False)
    for at in range(changes):
        for is_done in (False, True):
            dies_and_continues(tmp_path / f"{at} {is_done}", at, is_done=is_done)


def dies_and_continues(folder: Path, at: int | None, *, is_done: bool) -> int:
    numbers = Numbers(folder / "numbers", most=9)
    numbers.let_through()
    deaths = Deaths(folder / "jobs", at, is_done=is_done)
    job_id = None
    with deaths.striking():
        try:
            server = Server(folder)
            job = submit(server, numbers)
            job_id = job.job_id
            wait_for(lambda: not any(job.job_id in each.name for each in threading.enumerate()))
        except Died:
            pass
    with serving(folder) as server:
        jobs = server.jobs.all()
        if not jobs:  # nothing was submitted
            jobs = [submit(server, numbers)]
        (job,) = jobs
        assert job_id in (None, job.job_id)
        check_end(numbers, job)
        wait_for(
            lambda: (
                [each for each in names_in(folder) if each != "checkpoints"]
                == [f"000000000001-{job.job_id}.ended"]
            )
        )
    return len(deaths.changes)


def test_streams_and_batch_jobs_keep_their_order(tmp_path: Path, numbers: Numbers) -> None:
    obstacle = Obstacle(tmp_path / "obstacle")
    with serving(tmp_path) as server:
        stream = begin(server, numbers, tmp_path)
        waiting = [server.submit(obstacle.two_levels), submit(server, Numbers(tmp_path / "other"))]
    numbers.let_through()
    obstacle.let_through()
    with serving(tmp_path) as server:
        ids = [job.job_id for job in (stream, *waiting)]
        assert [job.job_id for job in server.jobs.all()] == ids
        check_end(numbers, server.jobs.job(stream.job_id))
        assert state_of(server.jobs.job(waiting[0].job_id)) == "DONE"
        last = server.jobs.job(waiting[1].job_id)
        wait_for(lambda: last.record.state == "RUNNING")
        server.jobs.cancel(last.job_id)
        assert state_of(last) == "CANCELLED"
    assert not list((tmp_path / "jobs" / "checkpoints").iterdir())


def test_a_drained_stream_stays_drained(tmp_path: Path, numbers: Numbers) -> None:
    """The request is stored before the client has its answer."""
    with serving(tmp_path) as server:
        job = begin(server, numbers, tmp_path)
        job._ending.stored.note_drain()  # type: ignore[union-attr]  # and the server dies
    with serving(tmp_path) as server:
        assert state_of(server.jobs.job(job.job_id)) == "DRAINED"


def test_two_servers_do_not_both_run_a_stream(tmp_path: Path, numbers: Numbers) -> None:
    with serving(tmp_path) as older:
        job = begin(older, numbers, tmp_path)
        with serving(tmp_path) as newer:
            numbers.let_through()
            check_end(numbers, newer.jobs.job(job.job_id))
            assert job.wait(SOON_S)
            assert not job.record.has_last_state or job.record.state == "DONE"


def test_a_start_of_an_earlier_server_that_is_late_does_not_end_the_stream(
    tmp_path: Path, numbers: Numbers
) -> None:
    with serving(tmp_path) as server:
        job = begin(server, numbers, tmp_path)
        place = place_of(tmp_path, job)
        highest = max(place.rglob("*.fence"))
        late = fence_name(int(highest.name.partition(".")[0]) + 1)
        (place / late).write_text(job.job_id)
        numbers.let_through()
        check_end(numbers, job)
        assert len(server.sessions) == 2


def test_another_job_takes_the_checkpoint_over(tmp_path: Path, numbers: Numbers) -> None:
    options = {"checkpoint_dir": str(tmp_path / "checkpoint")}
    with serving(tmp_path, jobs=2) as server:
        job = begin(server, numbers, tmp_path, **options)
        other = submit(server, numbers, **options)
        wait_for(lambda: other.record.state == "RUNNING")
        numbers.let_through()
        check_end(numbers, other)
        assert state_of(job) in ("FAILED", "DONE")
        if job.record.state == "FAILED":
            *_, reason = job.record.messages.log.events()
            assert "another program has taken over" in reason.message_text


def test_a_stream_does_not_begin_again_without_its_checkpoint(
    tmp_path: Path, numbers: Numbers
) -> None:
    options = {"checkpoint_dir": str(tmp_path / "mount" / "checkpoint"), "restart": "fresh"}
    with serving(tmp_path) as server:
        job = begin(server, numbers, tmp_path, **options)
    away = (tmp_path / "mount").rename(tmp_path / "away")
    with serving(tmp_path) as server:
        refused = server.jobs.job(job.job_id)
        assert state_of(refused) == "FAILED"
        *_, reason = refused.record.messages.log.events()
        assert "nothing has been committed" in reason.message_text
    shutil.rmtree(tmp_path / "mount")  # as it was made without the storage behind it
    away.rename(tmp_path / "mount")
    numbers.let_through()
    with serving(tmp_path) as server:
        check_end(numbers, server.jobs.job(job.job_id))


def test_the_checkpoint_of_a_stream_that_fails_stays(tmp_path: Path, numbers: Numbers) -> None:
    def poisoned(p: beam.Pipeline) -> None:
        numbers.build(p, poison=30)

    numbers.let_through(20)
    with serving(tmp_path) as server:
        job = server.submit(poisoned, **QUICK)
        place = place_of(tmp_path, job)
        wait_for(lambda: commits_of(place) > 1)
        numbers.let_through()
        assert state_of(job) == "FAILED"
        texts = [each.message_text for each in job.record.messages.log.events()]
        assert any(f"--savepoint_path={place}" in text for text in texts)
    with serving(tmp_path) as server:
        assert commits_of(place)
        check_end(numbers, submit(server, numbers, savepoint_path=str(place)))


def test_a_stream_that_ends_its_servers_is_given_up(tmp_path: Path, numbers: Numbers) -> None:
    with serving(tmp_path) as server:
        job = begin(server, numbers, tmp_path)
    folder = tmp_path / "jobs" / job.job_id
    for fence in (2, 3, 4):  # as if three servers had died
        (folder / fence_name(fence)).write_text('{"commit": 0, "finished": 0}')
    with serving(tmp_path) as server:
        again = server.jobs.job(job.job_id)
        assert state_of(again) == "FAILED"
        texts = [each.message_text for each in again.record.messages.log.events()]
        assert any("3 starts of this stream have ended" in text for text in texts)
        assert any(f"--savepoint_path={place_of(tmp_path, job)}" in text for text in texts)
    assert commits_of(place_of(tmp_path, job))


def test_a_test_stream_is_not_stored(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        job = server.submit(
            lambda p: p | Events().add_elements([1]).advance_watermark_to_infinity(), **QUICK
        )
        assert not job.is_stored
        assert state_of(job) == "DONE"
    assert names_in(tmp_path) == []
