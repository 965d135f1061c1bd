"""A job of a server that the next Spark application, or the next server, continues."""

import contextlib
from collections.abc import Callable

from apache_beam.runners.runner import PipelineState
from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.job.run.control import JobControl
from beam_spark_runner.job.run.recovery import JobRecovery, RunOutcome
from beam_spark_runner.job.server.ending import Ending
from beam_spark_runner.job.server.job_forms import EndedJob
from beam_spark_runner.job.server.metric_results import metric_results
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.manifest import FencedError
from beam_spark_runner.spark.session.handle import SessionHandle


class ServedRecovery(JobRecovery):
    """See ``JobRecovery``.

    Args:
        ending: Stores the end of the job.
        began_s: When the client submitted the job, Unix time.
        control: Requests to cancel or suspend it.
        has_lost_spark: Returns whether the Spark application of the job has ended.
        inform: Is called with what users may know.
        on_commit: Is called at each commit.
        waits_s: ``--previous_worker_recovery_timeout``.

    Attributes:
        starts_again: Whether the job continues in the next Spark application of this server.
        why: Why it starts again.
        continues_later: Whether the job has failed on this server only, and the next one continues
            it.
        end_elsewhere: How the job has ended on another server.
    """

    def __init__(
        self,
        ending: Ending,
        began_s: float,
        control: JobControl,
        has_lost_spark: Callable[[], bool],
        inform: Callable[[str], None],
        on_commit: Callable[[], None],
        waits_s: float,
    ) -> None:
        super().__init__(ending.stored.folder, "jobs_dir", waits_s, began_s, on_commit=on_commit)
        self.starts_again = self.continues_later = False
        self.why = ""
        self.end_elsewhere: EndedJob | None = None
        self._ending = ending
        self._control = control
        self._has_lost_spark = has_lost_spark
        self._inform = inform

    @override
    def _continues(self, settings: RunSettings, progress: str) -> None:
        assert self.start is not None
        self._inform(f"start {self.start.number} of the job continues after {progress}")

    @override
    def _check_claimed(self, start: BatchStart) -> None:
        self._ending.stored.check_server()
        # An earlier server stores the end before it removes what the start would have found.
        if self._ending.stored_end() is not None and not self._control.is_cancelled:
            raise FencedError(start.number, start.number + 1)

    @override
    def _finish(self, outcome: RunOutcome) -> str | None:
        state = outcome.state
        if state != PipelineState.DONE and (end := self._ending.known_end()) is not None:
            self.end_elsewhere = end
            self.error = RuntimeError(end.error) if end.error else None
            self._ending.remove(end.states[-1].state)
            return end.states[-1].state
        is_fenced = self.is_fenced or isinstance(outcome.error, FencedError)
        if is_fenced and not self._belongs_to_another():
            self.starts_again = self._is_owner()
            self.why = "an earlier job server has claimed the job, which this one claims again"
            return None
        if state == PipelineState.CANCELLED and self._control.is_suspended:
            with contextlib.suppress(CheckpointStorageError):  # it counts as one that has died
                if self.start is not None:
                    self.start.stop()
            return None
        if outcome.error is not None:
            # Without a start, the job has found no Spark at all.
            if self.start is not None and not is_fenced and self._has_lost_spark():
                self.starts_again = True
                self.why = "the Spark application has ended, and another one is started"
                self._end_start()
                return None
            if self._should_keep(outcome.error):
                self.continues_later = True
                self._end_start()
                outcome.warn(
                    "nothing of the job is removed: the next start of the job server continues "
                    f"after {self.progress}"
                )
                self._ending.suspend()
                return state
        self._warn_of_what_remains(outcome)
        metrics = metric_results(outcome.attempted(), outcome.committed())
        return self._ending.end(state, outcome.error, metrics.SerializeToString())

    def _belongs_to_another(self) -> bool:
        """Whether a program that is no start of this job has taken over what the job has stored."""
        return False

    def _should_keep(self, error: BaseException) -> bool:
        """See ``Ending.should_keep``."""
        return self._ending.should_keep(error, has_run=self.has_run)

    def _warn_of_what_remains(self, outcome: RunOutcome) -> None:
        """Warn of what is not removed of a job that is over."""

    def _is_owner(self) -> bool:
        """Whether a start of an earlier server has taken the job over, which may not run it."""
        try:
            self._ending.stored.check_server()
        except (CheckpointStorageError, FencedError):
            return False
        return True

    def _end_start(self) -> None:
        with contextlib.suppress(CheckpointStorageError):  # another start waits in vain
            if self.start is not None:
                self.start.rest()


def is_spark_lost(session: SessionHandle) -> bool:
    """Whether the Spark application of a session has ended, or its JVM does not answer."""
    try:
        return session.has_ended()
    except Exception:  # of Py4J
        return True
