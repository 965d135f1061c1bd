"""The queue of a server: jobs that wait for a free Spark scheduler pool, and those that run."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.job.server.served_job import ServedJob

_LOGGER = logging.getLogger(__name__)
_WORDS = ("waiting", "starting", "running", "draining", "done", "drained", "failed", "cancelled")


def count_by_state(jobs: Iterable[ServedJob]) -> dict[str, int]:
    """Return how many jobs are in each state, by its name in lower case.

    ``STOPPED`` is the state of jobs that wait, and is called so.
    """
    counts = dict.fromkeys(_WORDS, 0)
    for job in jobs:
        state = str(job.record.state)
        counts["waiting" if state == PipelineState.STOPPED else state.lower()] += 1
    return counts


class JobQueue:
    """Runs jobs in the order in which they were added, several at a time. Threads: any.

    A suspect, which may have ended earlier servers, comes first: nothing begins until it has made
    progress or has ended. If it ends this server, too, no other job has begun with it.

    Args:
        pools: The number of scheduler pools: how many jobs run at a time.
        run: Runs a job in a pool, and returns after its end.
        has_ended: Is called once a job has ended, or cannot begin.
    """

    def __init__(
        self,
        pools: int,
        run: Callable[[ServedJob, str], None],
        has_ended: Callable[[ServedJob], None],
    ) -> None:
        self._waiting: deque[ServedJob] = deque()
        self._suspects: set[str] = set()  # ids of jobs that wait
        self._running_suspect: ServedJob | None = None  # it has made no progress yet
        self._free_pools = [f"beam-{n}" for n in reversed(range(pools))]
        self._run_job = run
        self._has_ended = has_ended
        self._lock = threading.Lock()

    def add(self, jobs: Iterable[ServedJob], suspects: Collection[str] = ()) -> None:
        """Add jobs at the end of the queue.

        Args:
            jobs: The jobs.
            suspects: The ids of those that are suspects. The queue is empty.
        """
        with self._lock:
            self._suspects.update(suspects)
            self._waiting.extend(sorted(jobs, key=lambda job: job.job_id not in suspects))
        self._begin_next()

    def note_progress(self, job: ServedJob) -> None:
        """Note that a job has made progress: it is no suspect."""
        with self._lock:
            if self._running_suspect is not job:
                return
            self._running_suspect = None
        self._begin_next()

    def remove(self, job: ServedJob) -> bool:
        """Remove a job from the queue; return whether it has waited there."""
        with self._lock:
            waits = job in self._waiting
            if waits:
                self._waiting.remove(job)
        return waits

    def _begin_next(self) -> None:
        """Start waiting jobs, as long as there are free pools."""
        while True:
            with self._lock:
                if not (self._waiting and self._free_pools) or self._running_suspect is not None:
                    return
                job, pool = self._waiting.popleft(), self._free_pools.pop()
                if job.job_id in self._suspects:
                    self._running_suspect = job
            thread = threading.Thread(
                target=self._run_in_pool, args=(job, pool), name=f"beam-serve-{job.job_id}"
            )
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no more threads for this process
                self._release(job, pool)
                job.fail(error)
                self._has_ended(job)

    def _run_in_pool(self, job: ServedJob, pool: str) -> None:
        try:
            self._run_job(job, pool)
        except Exception as error:
            _LOGGER.exception("job %s", job.job_id)
            if not job.has_ended:
                job.fail(error)
        finally:
            self._release(job, pool)
            self._has_ended(job)
            self._begin_next()

    def _release(self, job: ServedJob, pool: str) -> None:
        with self._lock:
            self._free_pools.append(pool)
            if self._running_suspect is job:
                self._running_suspect = None
