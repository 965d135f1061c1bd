"""The queue of a server, whose jobs do nothing but wait."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from beam_spark_runner.job.server.job_queue import JobQueue
from beam_spark_runner.job.server.served_job import ServedJob
from tests.harness.processes import wait_for


class WaitingJob:
    """A job of which the queue needs only the id."""

    has_ended = True

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.may_end = threading.Event()


class Queue:
    """A queue with two pools.

    Attributes:
        begun: The ids of the jobs that have begun, in order.
        queue: The queue.
    """

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._jobs: dict[str, WaitingJob] = {}
        self._ended: list[str] = []
        self.queue = JobQueue(2, self._run, lambda job: self._ended.append(job.job_id))

    def _run(self, job: ServedJob, _: str) -> None:
        self.begun.append(job.job_id)
        self._jobs[job.job_id].may_end.wait()

    def add(self, ids: str, suspects: str = "") -> None:
        jobs = {id_: WaitingJob(id_) for id_ in ids}
        self._jobs |= jobs
        self.queue.add(cast(Any, jobs.values()), suspects)

    def note_progress(self, id_: str) -> None:
        self.queue.note_progress(cast(Any, self._jobs[id_]))

    def end(self, id_: str) -> None:
        self._jobs[id_].may_end.set()
        wait_for(lambda: id_ in self._ended)

    def end_all(self) -> None:
        for job in self._jobs.values():
            job.may_end.set()
        wait_for(lambda: len(self._ended) == len(self._jobs))

    def have_begun(self, ids: str) -> bool:
        wait_for(lambda: len(self.begun) >= len(ids))
        return self.begun == list(ids)


@pytest.fixture
def queue() -> Iterator[Queue]:
    made = Queue()
    yield made
    made.end_all()


def test_jobs_begin_in_their_order(queue: Queue) -> None:
    queue.add("abc")
    wait_for(lambda: sorted(queue.begun) == ["a", "b"])
    queue.end("b")
    wait_for(lambda: "c" in queue.begun)


def test_nothing_begins_with_a_suspect_until_it_makes_progress(queue: Queue) -> None:
    queue.add("abc", suspects="c")
    assert queue.have_begun("c")
    queue.add("d")
    assert queue.begun == ["c"]
    queue.note_progress("c")
    assert queue.have_begun("ca")
    queue.note_progress("c")  # each commit is noted
    assert queue.begun == ["c", "a"]


def test_a_suspect_that_ends_lets_the_next_one_begin(queue: Queue) -> None:
    queue.add("abc", suspects="bc")
    assert queue.have_begun("b")
    queue.end("b")
    assert queue.have_begun("bc")
    queue.note_progress("c")
    assert queue.have_begun("bca")
