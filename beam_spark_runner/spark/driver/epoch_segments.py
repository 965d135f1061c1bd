"""Runs an epoch of a streaming plan: its segments, one Spark job after another."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from beam_spark_runner.core.errors import SparkJobError
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.plan.levels import LevelRange, parts
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.sweep import rows_name
from beam_spark_runner.scheduling import segments
from beam_spark_runner.scheduling.attempts import Attempts, Report, Verdict
from beam_spark_runner.spark.driver.anchor import AnchorPolicy
from beam_spark_runner.spark.driver.epoch_jobs import EpochJobs, Rows, Stored
from beam_spark_runner.spark.driver.plan_copies import PlanCopier
from beam_spark_runner.spark.driver.program_builder import ProgramBuilder
from beam_spark_runner.spark.driver.resident_task import ResidentTask
from beam_spark_runner.spark.driver.run_context import RunMetrics, RunSettings
from beam_spark_runner.spark.driver.segment_job import segment_title
from beam_spark_runner.spark.driver.triage import Attempt, attempt

_LOGGER = logging.getLogger(__name__)


class EpochSegments:
    """Runs epochs of a streaming plan.

    Tasks of a segment's last level store their rows and marks, those for later segments among
    them, in files of the checkpoint folder. The next segment reads the files of those attempts
    that were accepted, and no others: each file has the name of its attempt.

    If tasks of a segment disagree, or an executor is lost, that segment runs again, and not those
    before it. This is sound, since it reads the same as before: rows of the same attempts, which
    are not lost with an executor; shards of its own levels, at the heads of the last committed
    epoch, whatever rejected attempts have sealed since; and views, watermarks, clock and budget,
    which marks bring from the driver. One manifest commits the output of all segments, or none
    does, so that nothing of a rejected attempt is ever read by an epoch or seen outside.

    All segments have the same anchor: the shards of one partition, of all levels, are on one host.

    Threads: the one that makes it.

    Args:
        plan: the streaming plan.
        settings: where and how it runs.
        tally: gets the metrics of all attempts.

    Attributes:
        planning_ns: the time that it took to submit the Spark jobs of the last epoch.
    """

    def __init__(self, plan: Plan, settings: RunSettings, tally: RunMetrics) -> None:
        self._plan, self._settings, self._tally = plan, settings, tally
        builder = ProgramBuilder(plan, settings.job_id, settings.limits, settings.epoch)
        self._copier = PlanCopier.of(settings)
        self._resident: ResidentTask | None = None
        if settings.in_one_task and self._copier is not None:  # else threads share properties
            name = settings.job_name
            title = f"epochs{f' of {name}' if name else ''}: "
            title += segment_title(plan, plan.segments[0])
            self._resident = ResidentTask(settings, title)
        self._jobs = {
            segment.id: EpochJobs(plan, segment, settings, builder, self._copier, self._resident)
            for segment in plan.segments
        }
        self._anchoring = AnchorPolicy(settings.spark, settings.least_partitions)
        self.planning_ns = 0

    def run(self, number: int, fence: int, rows: Rows, levels: range) -> Sequence[Report]:
        """Run an epoch until one attempt at each of its segments is accepted.

        Args:
            number: the number of the epoch.
            fence: the fence of this driver.
            rows: the rows that the first level reads.
            levels: the levels that run, counted over all segments; at least one. The others have
                finished.

        Returns:
            The reports of the accepted attempts.

        Raises:
            BundleFailedError: user code failed in all attempts that Spark makes at a task.
            SparkJobError: Spark failed a segment, or it has run too often without being accepted.
            CheckpointStorageError: rows or shards cannot be read or stored.
        """
        self.planning_ns = 0
        running = parts(self._plan, levels)
        places = {part.segment.id: place for place, part in enumerate(running)}
        order = segments.SegmentOrder(
            {
                part.segment.id: frozenset({running[place - 1].segment.id} if place else ())
                for place, part in enumerate(running)
            }
        )
        accepted: dict[SegmentId, Sequence[Report]] = {}
        action = order.start()
        while not isinstance(action, segments.Finish):
            self._settings.check_cancelled()
            place = places[action.segment]
            part = running[place]
            if isinstance(action, segments.GiveUp):
                raise SparkJobError(segment_title(self._plan, part.segment), action.reason)
            for stale in action.forget:
                accepted.pop(stale, None)
            source: Rows | Stored = rows
            if place:
                before = running[place - 1]
                source = self._stored(before, accepted[before.segment.id], number, fence)
            job = _EpochJob(number, part, source, stores_rows=part is not running[-1])
            reports, event = self._attempt(job)
            if isinstance(event, segments.Ran):
                accepted[part.segment.id] = reports
            action = order.on(event)
        found = [report for part in running for report in accepted[part.segment.id]]
        shards = [report.shard for report in found if report.shard is not None]
        if rebuilt := sum(shard.was_rebuilt for shard in shards):
            _LOGGER.info("epoch %d: %d of %d shards rebuilt", number, rebuilt, len(shards))
        return found

    def close(self) -> None:
        """Release Spark's resources for the jobs."""
        if self._resident is not None:
            self._resident.close()
        if self._copier is not None:
            self._copier.close()
        self._anchoring.release()

    def _stored(
        self, part: LevelRange, reports: Sequence[Report], number: int, fence: int
    ) -> Stored:
        """Return the rows that the accepted tasks of a part have stored."""
        shards = self._settings.shards
        last = sorted(
            (report for report in reports if report.level == part.last),
            key=lambda report: report.partition,
        )
        return Stored(
            names=[
                rows_name(shards.lineage, number, fence, each.level, each.partition, each.attempt)
                for each in last
            ],
            made_by=Attempts.of(each.attempt for each in last),
        )

    def _attempt(self, job: "_EpochJob") -> tuple[Sequence[Report], segments.Event]:
        segment = job.part.segment
        jobs = self._jobs[segment.id]
        name = self._settings.job_name
        epoch = f"epoch {job.number}"
        title = f"{epoch}{f' of {name}' if name else ''}: "
        title += segment_title(self._plan, segment)
        self._settings.observer.began(job.number)
        began_ns = time.monotonic_ns()
        reports: Sequence[Report] = ()

        def run() -> Verdict:
            nonlocal reports
            with self._settings.job_scope(title):
                if self._settings.anchors and not isinstance(job.source, Stored):  # an epoch begins
                    self._anchoring.weigh()
                reports, verdict = jobs.run(
                    job.source,
                    job.part.levels,
                    stores_rows=job.stores_rows,
                    anchor=self._anchoring.anchor,
                )
            self.planning_ns += jobs.planned_ns - began_ns
            infos = [info for report in reports for info in report.monitoring_infos]
            self._tally.attempted = self._tally.merged([*self._tally.attempted, *infos])
            self._settings.observer.reported(reports)
            return verdict

        before = {SegmentId(segment.id - 1)} if isinstance(job.source, Stored) else set()
        event = attempt(
            Attempt(
                segment=segment.id,
                title=f"segment {segment.id} of {epoch}" if len(self._jobs) > 1 else epoch,
                run=run,
                check_cancelled=self._settings.check_cancelled,
                blamed_for=jobs.steps_blamed_for,
                writers_in=lambda runs: frozenset(before),
            )
        )
        return reports, event


@dataclass(frozen=True, slots=True)
class _EpochJob:
    """One Spark job of an epoch: see ``EpochJobs.run``."""

    number: int  # of the epoch
    part: LevelRange
    source: Rows | Stored
    stores_rows: bool
