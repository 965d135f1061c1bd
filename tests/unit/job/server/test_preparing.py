"""Pipelines whose preparation does not end by itself: the client is answered all the same."""

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.errors import JobCancelledError, PrepareTimeoutError
from beam_spark_runner.job.prepare.prepare import prepare
from beam_spark_runner.job.server import jobs as jobs_module
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.limited_call import LimitedCall
from beam_spark_runner.options.server_options import ServerConfig
from tests.unit.job.server.served import SOON_S, Gate, request, served, states_of


class Loop:
    """In place of a function: it loops, until its thread is interrupted."""

    def __init__(self) -> None:
        self.begun, self.ended = threading.Event(), threading.Event()

    def __call__(self, *_: Any, **__: Any) -> Any:
        self.begun.set()
        try:
            while True:
                pass
        finally:
            self.ended.set()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    made = Loop()
    monkeypatch.setattr(jobs_module, "prepare", made)
    yield made
    if made.begun.is_set():
        assert made.ended.wait(SOON_S)


def config(folder: Path, limit_s: int = 3600) -> ServerConfig:
    return ServerConfig(artifacts_dir=str(folder), prepare_timeout_s=limit_s)


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def ended(thread: threading.Thread) -> bool:
    thread.join(SOON_S)
    return not thread.is_alive()


def begin(jobs: Jobs, loop: Loop) -> tuple[threading.Thread, list[Any], Any]:
    """Run a job whose preparation loops; return its thread, its answer, and the job."""
    prepared = jobs.prepare(request())
    thread, found = in_thread(lambda: jobs.run(prepared))
    assert loop.begun.wait(SOON_S)
    (job,) = jobs.all()
    assert job.record.state == "STOPPED"
    return thread, found, job


def test_a_job_that_takes_too_long_is_refused(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(config(tmp_path, 1)) as (jobs, gate):
        prepared = jobs.prepare(request())
        with pytest.raises(PrepareTimeoutError, match="longer than 1 s, the --prepare_timeout"):
            jobs.run(prepared)
        assert loop.ended.wait(SOON_S)
        assert jobs.all() == []
        monkeypatch.undo()
        gate.let_through(1)
        assert jobs.job(jobs.run(jobs.prepare(request()))).wait(SOON_S)
    assert [*tmp_path.iterdir()] == []


def test_a_job_is_cancelled_while_it_is_prepared(tmp_path: Path, loop: Loop) -> None:
    with served(config(tmp_path)) as (jobs, _):
        thread, found, job = begin(jobs, loop)
        assert jobs.cancel(job.job_id) is job
        assert job.wait(SOON_S)
        assert ended(thread)
        assert found == [job.job_id]
        assert states_of(job) == ["STOPPED", "CANCELLED"]
        assert jobs.all() == [job]
        job.drain()  # nothing happens after the end


def test_the_end_of_the_server_cancels_it(tmp_path: Path, loop: Loop) -> None:
    with served(config(tmp_path)) as (jobs, _):
        thread, found, job = begin(jobs, loop)
        assert jobs.end_all(SOON_S)
        assert ended(thread)
        assert found == [job.job_id]
        assert job.record.state == "CANCELLED"


def test_who_asks_for_its_watermarks_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, begun = threading.Event(), threading.Event()

    def wait(*given: Any, **named: Any) -> Any:
        begun.set()
        goes_on.wait()
        return prepare(*given, **named)

    monkeypatch.setattr(jobs_module, "prepare", wait)
    with served(config(tmp_path)) as (jobs, gate):
        wanted = request()
        wanted.pipeline_options.update({"beam:option:streaming:v1": True})
        id_ = jobs.prepare(wanted)
        thread, answers = in_thread(lambda: jobs.run(id_))
        assert begun.wait(SOON_S)
        (job,) = jobs.all()
        asking, found = in_thread(job.watermarks)
        assert found == []
        goes_on.set()
        assert ended(thread)
        assert ended(asking)
        assert (answers, found) == ([job.job_id], [{}])
        gate.let_through(1)
        assert job.wait(SOON_S)


def test_options_that_take_too_long_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop()
    monkeypatch.setattr(jobs_module, "read_options", loop)
    with served(config(tmp_path, 1)) as (jobs, _), pytest.raises(PrepareTimeoutError):
        jobs.prepare(request())
    assert loop.ended.wait(SOON_S)


def test_a_call_that_is_not_in_python_ends_for_its_caller() -> None:
    returns = threading.Event()
    call = LimitedCall(returns.wait, 0.1)
    with pytest.raises(PrepareTimeoutError):
        call.result()
    returns.set()


def test_a_call_that_was_stopped_before_is_not_made() -> None:
    made: list[int] = []
    call = LimitedCall(lambda: made.append(1), SOON_S)
    thread, _ = in_thread(lambda: call.stop(JobCancelledError()))
    assert ended(thread)
    with pytest.raises(JobCancelledError):
        call.result()
    assert made == []


def test_what_a_call_returns_or_raises() -> None:
    assert LimitedCall(lambda: 7, SOON_S).result() == 7
    with pytest.raises(ZeroDivisionError):
        LimitedCall(lambda: 1 // 0, SOON_S).result()
    call = LimitedCall(lambda: 8, SOON_S)
    assert call.result() == 8
    call.stop(JobCancelledError())  # too late


@pytest.mark.parametrize("attempt", range(50))
def test_a_cancellation_may_come_at_any_time(attempt: int, tmp_path: Path) -> None:
    with served(dataclasses.replace(config(tmp_path), max_concurrent_jobs=1)) as (jobs, gate):
        occupy(jobs, gate)
        id_ = jobs.prepare(request())
        thread, found = in_thread(lambda: jobs.run(id_))
        while len(jobs.all()) < 2:
            pass
        job = jobs.all()[-1]
        sum(range(attempt * 20_000))  # anywhere in its preparation, or after it
        jobs.cancel(job.job_id)
        assert job.wait(SOON_S)
        assert ended(thread)
        assert found == [job.job_id]
        assert states_of(job) == ["STOPPED", "CANCELLED"]


def occupy(jobs: Jobs, gate: Gate) -> None:
    jobs.run(jobs.prepare(request()))
    gate.wait_for(1)
