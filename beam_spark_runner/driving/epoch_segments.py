"""Runs an epoch of a streaming plan: its segments, one job after another."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from beam_spark_runner.core.errors import SparkJobError
from beam_spark_runner.core.ids import SegmentId
from beam_spark_runner.driving.clock import Clock
from beam_spark_runner.driving.cluster import Cluster, EpochJob, StoredInput
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_job import blamed_levels, segment_title
from beam_spark_runner.driving.triage import Attempt, attempt
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows.driver_rows import Rows
from beam_spark_runner.plan.levels import LevelRange, parts
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.recovery.sweep import rows_name
from beam_spark_runner.scheduling import segments
from beam_spark_runner.scheduling.attempts import (
    IN_THIS_JOB,
    Attempts,
    Failed,
    Report,
    Verdict,
    judge,
)

_LOGGER = logging.getLogger(__name__)


Programs = Callable[[Segment, range, bool], Sequence[LevelProgram]]
"""Builds the programs of levels of a segment; see ``ProgramBuilder.of_epoch``."""


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
        settings: how it runs.
        cluster: on which it runs.
        tally: gets the metrics of all attempts.
        clock: of this machine.
        programs: builds the programs of levels.

    Attributes:
        planning_ns: the time that it took to submit the jobs of the last epoch.
    """

    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        cluster: Cluster,
        tally: RunMetrics,
        clock: Clock,
        programs: Programs,
    ) -> None:
        self._plan, self._settings, self._tally = plan, settings, tally
        self._cluster, self._clock = cluster, clock
        self._programs = programs
        # The last job of each segment: the same one as long as its levels are.
        self._jobs: dict[SegmentId, tuple[_Kind, EpochJob]] = {}
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
            BundleFailedError: user code failed in all attempts at a task.
            SparkJobError: the cluster failed a segment, or it has run too often without being
                accepted.
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
        while not isinstance(action, segments.FinishPlan):
            self._settings.check_cancelled()
            place = places[action.segment]
            part = running[place]
            if isinstance(action, segments.GiveUp):
                raise SparkJobError(segment_title(self._plan, part.segment), action.reason)
            for stale in action.forget:
                accepted.pop(stale, None)
            source: Rows | StoredInput = rows
            if place:
                before = running[place - 1]
                source = self._stored(before, accepted[before.segment.id], number, fence)
            job = _Run(number, part, source, stores_rows=part is not running[-1])
            reports, event = self._attempt(job)
            if isinstance(event, segments.RanSegment):
                accepted[part.segment.id] = reports
            action = order.on(event)
        found = [report for part in running for report in accepted[part.segment.id]]
        shards = [report.shard for report in found if report.shard is not None]
        if rebuilt := sum(shard.was_rebuilt for shard in shards):
            _LOGGER.info("epoch %d: %d of %d shards rebuilt", number, rebuilt, len(shards))
        return found

    def _stored(
        self, part: LevelRange, reports: Sequence[Report], number: int, fence: int
    ) -> StoredInput:
        """Return the rows that the accepted tasks of a part have stored."""
        shards = self._settings.shards
        last = sorted(
            (report for report in reports if report.level == part.last),
            key=lambda report: report.partition,
        )
        return StoredInput(
            names=[
                rows_name(shards.lineage, number, fence, each.level, each.partition, each.attempt)
                for each in last
            ],
            made_by=Attempts.of(each.attempt for each in last),
        )

    def _attempt(self, run: "_Run") -> tuple[Sequence[Report], segments.Event]:
        segment, source = run.part.segment, run.source
        name = self._settings.job_name
        epoch = f"epoch {run.number}"
        title = f"{epoch}{f' of {name}' if name else ''}: "
        title += segment_title(self._plan, segment)
        self._settings.observer.began(run.number)
        began_ns = self._clock.monotonic_ns()
        reports: Sequence[Report] = ()

        def run_levels() -> Verdict:
            nonlocal reports
            with self._cluster.scope(title):
                result = self._cluster.run_epoch(self._job(run), source)
            reports = result.reports
            self.planning_ns += result.submitted_ns - began_ns
            infos = [info for report in reports for info in report.monitoring_infos]
            self._tally.attempt(infos)
            self._settings.observer.reported(reports)
            return self._judged(reports, run)

        before = {SegmentId(segment.id - 1)} if isinstance(source, StoredInput) else set()
        event = attempt(
            Attempt(
                segment=segment.id,
                cluster=self._cluster,
                title=f"segment {segment.id} of {epoch}" if len(self._plan.segments) > 1 else epoch,
                run=run_levels,
                check_cancelled=self._settings.check_cancelled,
                on_trouble=self._settings.on_trouble,
                blamed_for=lambda error: blamed_levels(
                    self._plan, segment, run.part.levels, self._cluster, error
                ),
                writers_in=lambda runs: frozenset(before),
            )
        )
        return reports, event

    def _job(self, run: "_Run") -> EpochJob:
        """Return the job of a run: the last one of its segment, if that was of the same kind."""
        segment, levels = run.part.segment, run.part.levels
        kind = _Kind(levels, isinstance(run.source, StoredInput), run.stores_rows)
        known = self._jobs.get(segment.id)
        if known is not None and known[0] == kind:
            return known[1]
        job = EpochJob(
            title=segment_title(self._plan, segment),
            programs=self._programs(segment, levels, run.stores_rows),
            reads_stored=kind.reads_stored,
        )
        self._jobs[segment.id] = kind, job
        return job

    def _judged(self, reports: Sequence[Report], run: "_Run") -> Verdict:
        part, source = run.part, run.source
        for report in reports:
            if report.level < part.first and report.failure is not None:
                return Failed(report.failure)  # stored rows could not be read
        made_by = {IN_THIS_JOB: source.made_by} if isinstance(source, StoredInput) else {}
        return judge(reports, self._tasks_of(part), first=part.first, materialised=made_by)

    def _tasks_of(self, part: LevelRange) -> Mapping[int, int]:
        """Return the number of tasks after each exchange, by the number of the level after it."""
        return {
            part.segment.first_level + index: self._settings.least_partitions
            for index in part.levels
            if part.segment.levels[index].has_exchange
        }


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of some levels of a segment, for one epoch."""

    number: int  # of the epoch
    part: LevelRange
    source: Rows | StoredInput
    stores_rows: bool


class _Kind(NamedTuple):
    """What the programs of a segment's levels depend on."""

    levels: range
    reads_stored: bool
    stores_rows: bool
