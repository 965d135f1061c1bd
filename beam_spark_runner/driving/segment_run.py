"""Runs the jobs that one segment takes.

It takes one, unless its first task stops before the end, or splittable DoFns leave something.
"""

import logging
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from beam_spark_runner.backchannel.offers import Offer
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.driving.clock import Clock
from beam_spark_runner.driving.cluster import Cluster, HelpFailedError, JobResult
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_job import SegmentJob, SegmentJobs, segment_title
from beam_spark_runner.driving.segment_store import RestoredJobs, SegmentStore
from beam_spark_runner.engine.program import SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.portable.monitoring import residual_gauges
from beam_spark_runner.scheduling import rounds
from beam_spark_runner.scheduling.attempts import Accepted, Report, Verdict

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRuns:
    """What the runs of all segments of a plan have in common."""

    plan: Plan
    settings: RunSettings
    cluster: Cluster
    builder: ProgramBuilder
    tally: RunMetrics
    jobs: SegmentJobs
    clock: Clock
    store: SegmentStore


@dataclass(frozen=True, slots=True)
class Source:
    """What a segment reads.

    Attributes:
        rows: the rows.
        fed: rows that the driver has, which tasks read in place of those.
        in_one_task: see ``SegmentJob``, of the first job.
    """

    rows: OutputRows
    fed: Sequence[pa.RecordBatch] = ()
    in_one_task: bool = False


class SegmentRun:
    """One run of one segment.

    Attributes:
        made: the results of its jobs that were accepted.
        infos: the monitoring infos of those.

    Args:
        runs: see the class.
        segment: the segment.
        source: what it reads.
        side_inputs: the gathered side inputs.
        partitions: the number of partitions of each exchange.
        restored: the jobs that earlier starts have run. None: there are none.
    """

    def __init__(
        self,
        runs: SegmentRuns,
        segment: Segment,
        source: Source,
        side_inputs: Mapping[DestinationId, SideInputRows],
        partitions: int,
        restored: RestoredJobs | None = None,
    ) -> None:
        self._runs = runs
        self._segment = segment
        self._source = source
        self._side_inputs = side_inputs
        self._partitions = partitions
        self._builder = runs.builder
        self._settings = runs.settings
        self._residuals: Mapping[DestinationId, int] = {}  # of the last job
        self._read: int = 0  # how many of ``made`` are no longer needed by later levels
        self.made: list[JobResult] = []
        self.infos: list[bytes] = []
        self._uncommitted: list[Sequence[Report]] = []  # of accepted jobs
        self._restored = restored
        self._budget_s = self._round_budget_s()

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of its jobs that were accepted."""
        return frozenset(result.part.run for result in self.made)

    def run(self) -> Verdict:
        """Run the jobs, one after another, until one is not accepted.

        Raises:
            Exception: what the cluster raises; see ``Failures``.
        """
        machine = rounds.Rounds(
            len(self._segment.levels), self._budget_s or 0.0, self._settings.longest_round_s
        )
        action = machine.start()
        if self._restored is not None:
            self.infos += self._restored.infos
            for result in self._restored.made:
                self.made.append(result)
                self._residuals = result.residuals
                action = machine.on(self._ran(result))
        while not isinstance(action, rounds.FinishSegment):
            self._settings.check_cancelled()
            job = self._job(action)
            event = self._run_in_one_task(job) if job.in_one_task else self._run_job(job)
            if not isinstance(event, rounds.RanLevels | rounds.Stopped):
                return event
            action = machine.on(event)
            self._commit(is_last=isinstance(action, rounds.FinishSegment))
        return Accepted()

    def _round_budget_s(self) -> float | None:
        """Return the budget of the first Spark job; None: no rounds."""
        settings, builder = self._settings, self._builder
        if settings.round_budget_s is None or not builder.has_rounds(self._segment):
            return None
        if self._partitions > 1 or builder.finalizes(self._segment):
            return settings.round_budget_s
        return settings.longest_round_s  # there is nobody who could help

    def _commit(self, *, is_last: bool) -> None:
        """Remember the accepted jobs; only then, bundles are finalized."""
        self._runs.store.accept(
            self._segment,
            self.made,
            lambda: self._runs.tally.merged(self.infos),
            is_last=is_last,
        )
        for reports in self._uncommitted:
            self._settings.observer.accepted(reports)
        self._uncommitted.clear()

    def _job(self, action: rounds.RunLevels | rounds.RunRound) -> SegmentJob:
        segment, source = self._segment, self._source
        is_first = not self.made
        rows = source.rows
        match action:
            case rounds.RunLevels(first=first):
                levels = range(first, len(segment.levels))
                if self.made:
                    hosted = [
                        edge.dest for i in levels for edge in self._builder.readers(segment, i)
                    ]
                    outputs = OutputRows.union([each.rows for each in self.made[self._read :]])
                    rows = outputs.rows_for(hosted)
                # This job passes on what it does not process, also for levels after a round.
                self._read = len(self.made)
            case rounds.RunRound(level=level, number=number):
                levels = range(level, level + 1)
                count = sum(self._residuals.values())
                _LOGGER.info("round %d: %d restriction(s) are left", number, count)
                rows = self.made[-1].rows.rows_for(self._residuals)
        return SegmentJob(
            run=self._runs.store.next_run(),
            segment=segment,
            levels=levels,
            source=rows,
            fed=source.fed if is_first else (),
            side_inputs=self._side_inputs,
            partitions=self._partitions,
            in_one_task=source.in_one_task and is_first,
            spreads_source=levels[0] == 0 and self._is_made_by_few(rows),
            materialises=bool(segment.writes) or self._budget_s is not None or source.in_one_task,
            round_budget_s=self._budget_s and action.budget_s,
            is_round=isinstance(action, rounds.RunRound),
        )

    def _run_job(self, job: SegmentJob) -> rounds.RanLevels | Verdict:
        result = self._runs.jobs.run(job)
        assert result is not None  # no first task, which may give up
        if not self._accept(result):
            return result.verdict
        return self._ran(result)

    def _ran(self, result: JobResult) -> rounds.RanLevels:
        return rounds.RanLevels(self._level_of(result.residuals))

    def _run_in_one_task(self, job: SegmentJob) -> rounds.RanLevels | rounds.Stopped | Verdict:
        """Run the first task of the segment, and help it if a level takes long."""
        can_help = self._partitions > 1
        helping = self._runs.cluster.helping(job.run, self._help if can_help else None)
        try:
            with helping:
                result = self._runs.jobs.run(job)
                if result is None or not isinstance(result.verdict, Accepted):
                    helping.stop()
        except HelpFailedError as error:
            self._accept(error.result)
            return error.result.verdict
        if result is None:
            return self._run_job(self._for_all_tasks(job))
        if not self._accept(result):
            return result.verdict
        if result.stopped_at is None:
            return rounds.RanLevels(None)
        if (helped := helping.result_for(result.reports)) is None:
            return rounds.Stopped(result.stopped_at)
        if not self._accept(helped):
            return helped.verdict
        return rounds.Stopped(result.stopped_at + 1)

    def _for_all_tasks(self, job: SegmentJob) -> SegmentJob:
        """Return a job with as many tasks as usual, after the only task has given up."""
        coded = schema.coded_batches(job.fed)
        return replace(
            job,
            run=self._runs.store.next_run(),
            source=OutputRows(self._runs.cluster.rows_of(coded), {}),
            fed=(),
            in_one_task=False,
            spreads_source=True,
        )

    def _help(self, offer: Offer) -> JobResult:
        """Run what the first task of the segment has not read, in another thread."""
        level = offer.level - self._segment.first_level
        job = SegmentJob(
            run=self._runs.store.next_run(),
            segment=self._segment,
            levels=range(level, level + 1),
            source=OutputRows(self._runs.cluster.rows_of(offer.rows), {}),
            side_inputs=self._side_inputs,
            partitions=self._partitions,
            materialises=True,
            round_budget_s=None,
            spreads_source=True,
        )
        runs = self._runs
        jobs = SegmentJobs(runs.plan, self._settings, runs.cluster, self._builder, runs.store)
        with self._runs.cluster.scope(segment_title(self._runs.plan, self._segment)):
            result = jobs.run(job, is_additional=True)
            assert result is not None  # it is no first task
            return result

    def _accept(self, result: JobResult) -> bool:
        """Count a job that has ended; return whether its output is accepted."""
        reports = result.reports
        self._residuals = result.residuals
        infos = [info for report in reports for info in report.monitoring_infos]
        if self.made or result.residuals:
            infos += self._gauges(reports)
        self._runs.tally.attempt(infos)
        self._settings.observer.reported(reports)
        if not isinstance(result.verdict, Accepted):
            return False
        self._uncommitted.append(reports)
        self.made.append(result)
        self.infos += infos
        return True

    def _is_made_by_few(self, rows: OutputRows) -> bool:
        """Whether fewer tasks than usual made the rows that the first level reads as they are."""
        segment = self._segment
        if segment.levels[0].has_exchange or any(
            edge.is_partition for edge in self._builder.readers(segment, 0)
        ):
            return False
        tasks = sum(attempts.count for attempts in rows.made_by.values())
        return 0 < tasks < self._settings.least_partitions

    def _gauges(self, reports: Sequence[Report]) -> list[bytes]:
        """Return gauges of the residuals that the segment has left for the next round."""
        infos: list[bytes] = []
        plan, now_ms = self._runs.plan, self._runs.clock.now_us() // 1_000
        for stage in (plan.stages[id_] for each in self._segment.levels for id_ in each.stages):
            if stage.is_splittable:
                dest = self._builder.input_of(stage.id)
                left = [each.residuals[dest] for each in reports if dest in each.residuals]
                count = sum(each.count for each in left)
                hold_us = min((each.hold_us for each in left), default=MAX_US)
                gauges = residual_gauges(stage.transforms[0], count, hold_us, now_ms)
                infos += [gauge.SerializeToString() for gauge in gauges]
        return infos

    def _level_of(self, dests: Container[DestinationId]) -> int | None:
        """Return the level that reads ``dests``, the first if there are several."""
        return next(
            (
                index
                for index in range(len(self._segment.levels))
                for edge in self._builder.readers(self._segment, index)
                if edge.dest in dests
            ),
            None,
        )
