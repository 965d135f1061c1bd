"""A bounded job of a server that the next Spark application, or the next server, continues."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

from apache_beam.portability.api import beam_job_api_pb2, metrics_pb2
from apache_beam.runners.runner import PipelineState
from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.driving.clock import Clock
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.session import Session
from beam_spark_runner.job.run.control import JobControl
from beam_spark_runner.job.run.recovery import JobRecovery, Outcome
from beam_spark_runner.job.server.ending import Ending
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.batch_start import BatchStart
from beam_spark_runner.recovery.begun_writes import UnknownTableWriteError
from beam_spark_runner.recovery.manifest import FencedError, IncompatibleCheckpointError

STAYS = (CheckpointStorageError, IncompatibleCheckpointError, UnknownTableWriteError)
"""Errors that somebody can mend: the folder of the job stays, and the next server continues it."""


class ServedRecovery(JobRecovery):
    """See ``JobRecovery``.

    Args:
        ending: Stores the end of the job.
        began_s: When the client submitted the job, Unix time.
        control: Requests to cancel or suspend it.
        has_lost_spark: Returns whether the Spark application of the job has ended.
        inform: Is called with what users may know.
        waits_s: ``--previous_worker_recovery_timeout``.

    Attributes:
        starts_again: Whether the job continues in the next Spark application of this server.
    """

    def __init__(
        self,
        ending: Ending,
        began_s: float,
        control: JobControl,
        has_lost_spark: Callable[[], bool],
        inform: Callable[[str], None],
        waits_s: float,
    ) -> None:
        super().__init__(ending.stored.folder, "jobs_dir", waits_s)
        self.starts_again = False
        self._ending = ending
        self._began_s = began_s
        self._control = control
        self._has_lost_spark = has_lost_spark
        self._inform = inform

    @property
    @override
    def began_s(self) -> float:
        return self._began_s

    @override
    def run(
        self,
        plan: Plan,
        settings: RunSettings,
        cluster: Cluster,
        tally: RunMetrics,
        clock: Clock,
        control: JobControl,
        session: Session,
    ) -> None:
        settings = replace(settings, on_continue=self._show_progress)
        super().run(plan, settings, cluster, tally, clock, control, session)

    def _show_progress(self, done: str) -> None:
        assert self.start is not None
        self._inform(f"start {self.start.number} of the job continues after {done}")

    @override
    def _check_claimed(self, start: BatchStart) -> None:
        # An earlier server stores the end before it removes what the start would have found.
        if self._ending.stored.has_ended() and not self._control.is_cancelled:
            raise FencedError(start.number, start.number + 1)

    @override
    def _finish(self, outcome: Outcome) -> str | None:
        state = outcome.state
        if self.is_fenced:
            return None
        if state == PipelineState.CANCELLED and self._control.is_suspended:
            if self.start is not None:
                self.start.stop()
            return None
        if state == PipelineState.FAILED:
            if isinstance(outcome.error, STAYS):
                self._rest()
                outcome.warn(
                    "nothing of the job is removed: the next start of the job server continues "
                    f"after {self.progress}"
                )
                return state
            # Without a start, the job has found no Spark at all.
            if self.start is not None and self._has_lost_spark():
                self.starts_again = True
                self._rest()
                return None
        return self._ending.end(state, outcome.error, _metrics_of(outcome).SerializeToString())

    def _rest(self) -> None:
        with contextlib.suppress(CheckpointStorageError):  # another start waits in vain
            if self.start is not None:
                self.start.rest()


def _metrics_of(outcome: Outcome) -> beam_job_api_pb2.MetricResults:
    parse = metrics_pb2.MonitoringInfo.FromString
    return beam_job_api_pb2.MetricResults(
        attempted=map(parse, outcome.attempted()), committed=map(parse, outcome.committed())
    )
