"""The queue of a server: jobs that wait for a free Spark scheduler pool, and those that run."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from beam_spark_runner.job.server.served_job import ServedJob

_LOGGER = logging.getLogger(__name__)


class JobQueue:
    """Runs jobs in the order in which they were added, several at a time. Threads: any.

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
        self._free_pools = [f"beam-{n}" for n in reversed(range(pools))]
        self._run_job = run
        self._has_ended = has_ended
        self._lock = threading.Lock()

    def add(self, jobs: Iterable[ServedJob]) -> None:
        """Add jobs at the end of the queue."""
        with self._lock:
            self._waiting.extend(jobs)
        self._begin_next()

    def take(self, job: ServedJob) -> bool:
        """Take a job from the queue; return whether it has waited there."""
        with self._lock:
            waits = job in self._waiting
            if waits:
                self._waiting.remove(job)
        return waits

    def _begin_next(self) -> None:
        """Start waiting jobs, as long as there are free pools."""
        while True:
            with self._lock:
                if not (self._waiting and self._free_pools):
                    return
                job, pool = self._waiting.popleft(), self._free_pools.pop()
            thread = threading.Thread(
                target=self._run, args=(job, pool), name=f"beam-serve-{job.job_id}"
            )
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no more threads for this process
                self._release(pool)
                job.fail(error)
                self._has_ended(job)

    def _run(self, job: ServedJob, pool: str) -> None:
        try:
            self._run_job(job, pool)
        except Exception as error:
            _LOGGER.exception("job %s", job.job_id)
            if not job.has_ended:
                job.fail(error)
        finally:
            self._release(pool)
            self._has_ended(job)
            self._begin_next()

    def _release(self, pool: str) -> None:
        with self._lock:
            self._free_pools.append(pool)
