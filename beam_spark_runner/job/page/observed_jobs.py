"""The facts of all jobs, which any number of viewers read at the cost of one."""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from beam_spark_runner.job.page.gathering import Gatherer
from beam_spark_runner.job.page.shown_job import ShownJob, ShownJobs
from beam_spark_runner.observing.job_facts import JobFacts

_LOGGER = logging.getLogger(__name__)
FRESH_S = 1.0
"""For this time, the facts of a running job are not gathered again."""
_LOOK_EVERY_S = 1.0  # for jobs that are new
_GATHER_EVERY = 5  # looks


class ObservedJobs:
    """Gathers the facts of jobs when they are asked for, and at intervals for their history.

    Threads: any.

    Args:
        jobs: The jobs.
        now_s: A monotonic clock, in seconds.
    """

    def __init__(self, jobs: ShownJobs, now_s: Callable[[], float] = time.monotonic) -> None:
        self._jobs, self._now_s = jobs, now_s
        self._lock = threading.Lock()
        self._gatherers: dict[str, Gatherer] = {}
        self._facts: dict[str, tuple[float, JobFacts]] = {}  # with the time at which they are old
        self._not_shown: set[str] = set()  # not completely; for one warning each
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._gather_at_intervals, name="beam-page-looks", daemon=True
        )

    def start(self) -> None:
        """Begin to look at the jobs at intervals, so that their throughput has a history."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def all_facts(self) -> list[JobFacts]:
        """Return the facts of all jobs, the newest first."""
        by_id = self.jobs_by_id()
        with self._lock:
            for forgotten in self._gatherers.keys() - by_id.keys():
                del self._gatherers[forgotten]
                self._facts.pop(forgotten, None)
                self._not_shown.discard(forgotten)
            return [self._fresh_facts(job_id, by_id) for job_id in reversed([*by_id])]

    def facts_of(self, job_id: str) -> JobFacts | None:
        """Return the facts of a job. None: there is no such job."""
        by_id = self.jobs_by_id()
        if job_id not in by_id:
            return None
        with self._lock:
            return self._fresh_facts(job_id, by_id)

    def jobs_by_id(self) -> Mapping[str, ShownJob]:
        """Return the jobs by their ids, the oldest first."""
        return {job.job_id: job for job in self._jobs.all()}

    def _fresh_facts(self, job_id: str, by_id: Mapping[str, ShownJob]) -> JobFacts:
        """Return the facts of a job, which may be a second old but for its state.

        The lock is held.
        """
        old_at_s, facts = self._facts.get(job_id, (0.0, None))
        now_s = self._now_s()
        shown = by_id[job_id]
        if facts is not None and now_s < old_at_s and facts.state == shown.record.state:
            return facts
        gatherer = self._gatherers.setdefault(job_id, Gatherer())
        try:
            facts = gatherer.gather(shown, self._jobs.spark_url())
        except Exception:  # of the page itself: neither the job nor the other jobs depend on it
            if job_id not in self._not_shown:
                _LOGGER.warning("the job page cannot show all of %s", job_id, exc_info=True)
            self._not_shown.add(job_id)
            facts = gatherer.states_only(shown)
        # The last facts of a job that has ended stay true once the job itself is gone.
        stays = facts.has_ended and shown.job is None
        self._facts[job_id] = (float("inf") if stays else now_s + FRESH_S, facts)
        return facts

    def _gather_at_intervals(self) -> None:
        looks = 0
        while not self._stopped.wait(_LOOK_EVERY_S):
            try:
                if looks % _GATHER_EVERY == 0:
                    self.all_facts()
                else:
                    self._look_at_new_ones()
            except Exception:
                _LOGGER.warning("the job page cannot look at the jobs", exc_info=True)
            looks += 1

    def _look_at_new_ones(self) -> None:
        """Gather the facts of jobs that have just begun: a quick one is gone at the next look."""
        by_id = self.jobs_by_id()
        with self._lock:
            for job_id, job in by_id.items():
                if job.job is not None and job_id not in self._gatherers:
                    self._fresh_facts(job_id, by_id)
