"""Tracks the running tasks of each job in this process, and ends jobs."""

import contextlib
import threading
from collections.abc import Callable, Iterator

_MAX_ENDED = 1_000


class RunningTasks:
    """Releases the runtime of a job, once the job has ended and none of its tasks runs here.

    Threads: any.

    Args:
        release: releases the runtime of a job. Called by one thread at a time; may be called again
            for the same job.
    """

    def __init__(self, release: Callable[[str], None]) -> None:
        self._release = release
        self._tasks: dict[object, tuple[str, Callable[[], None]]] = {}
        self._ended_jobs: dict[str, None] = {}  # the latest ones, in order
        self._changed = threading.Condition()
        self._releasing = threading.Lock()

    @contextlib.contextmanager
    def working_for(self, job_id: str, abandon: Callable[[], None]) -> Iterator[None]:
        """Keep the runtime of a job for as long as the task runs.

        Args:
            job_id: the id of the job.
            abandon: makes the task end soon; called from another thread.
        """
        task = object()
        with self._changed:
            self._tasks[task] = job_id, abandon
        try:
            yield
        finally:
            with self._changed:
                del self._tasks[task]
                has_ended = job_id in self._ended_jobs
                self._changed.notify_all()
            if has_ended:  # the task ended after ``end_job`` timed out, or began after it
                self.release_job(job_id)

    def end_job(self, job_id: str, timeout_s: float) -> bool:
        """End a job: its tasks are abandoned, and its runtime is released.

        Returns:
            False: a task has not ended in time. The runtime is released when it ends.
        """
        with self._changed:
            self._ended_jobs[job_id] = None
            while len(self._ended_jobs) > _MAX_ENDED:
                del self._ended_jobs[next(iter(self._ended_jobs))]
            for job, abandon in self._tasks.values():
                if job == job_id:
                    abandon()
            if not self._changed.wait_for(lambda: not self.has_task_of(job_id), timeout_s):
                return False
        self.release_job(job_id)
        return True

    def release_job(self, job_id: str) -> None:
        """Release the runtime of a job of which no task runs here."""
        with self._releasing:
            self._release(job_id)

    def has_task_of(self, job_id: str) -> bool:
        """Return whether a task works for a job now."""
        return any(job == job_id for job, _ in list(self._tasks.values()))
