"""Runs one job on the cluster: some levels of a segment, over the rows that they read.

Nothing is decided here: the caller, ``segment_run``, chooses the levels, and acts on the verdict.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.rendering import whole_message_of
from beam_spark_runner.driving.cluster import (
    Cluster,
    Failures,
    JobResult,
    LevelsJob,
    LevelsResult,
)
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.driving.segment_store import JobInput, JobPlace, SegmentStore
from beam_spark_runner.engine.level_stacks import level_in
from beam_spark_runner.engine.program import LevelProgram, OutputPlace, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.plan.levels import LevelRange
from beam_spark_runner.plan.model import Level, Plan, Segment
from beam_spark_runner.scheduling.attempts import Attempts, Report, judge
from beam_spark_runner.scheduling.segment_output import OutputPart


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentJob:
    """What one job is to do.

    Attributes:
        run: its number among the jobs of the pipeline.
        segment: the segment that runs.
        levels: the consecutive levels of the segment that run.
        source: the rows that the first level reads.
        in_one_task: one task runs the levels, as far as it comes; see ``task.first_task``.
        spreads_source: see ``LevelsJob``.
        side_inputs: the gathered side inputs that the levels read.
        partitions: the number of partitions of each exchange.
        materialises: whether its output is materialised.
        round_budget_s: the time for splittable DoFns; None: they process all restrictions.
        fed: rows that the driver has, which the first level reads in place of the source.
        is_round: see ``BatchPart``.
        place: see ``BatchPart``.
    """

    run: int
    segment: Segment
    levels: range
    source: OutputRows
    side_inputs: Mapping[DestinationId, SideInputRows]
    partitions: int
    materialises: bool
    round_budget_s: float | None
    in_one_task: bool = False
    spreads_source: bool = False
    fed: Sequence[pa.RecordBatch] = ()
    is_round: bool = False
    place: OutputPlace | None = None

    @property
    def exchanges_source(self) -> bool:
        """See ``LevelsJob.exchanges_source``."""
        return self.spreads_source or self.segment.levels[self.levels[0]].has_exchange

    @property
    def input(self) -> JobInput:
        """What its tasks read."""
        return JobInput(
            partitions=self.partitions if self.exchanges_source else None,
            sources=self.source.sources,
            made_by=self.source.made_by,
        )


class SegmentJobs:
    """Runs the jobs of one plan.

    Threads: one at a time.
    """

    def __init__(
        self,
        plan: Plan,
        settings: RunSettings,
        cluster: Cluster,
        builder: ProgramBuilder,
        store: SegmentStore,
    ) -> None:
        self._plan = plan
        self._settings = settings
        self._cluster = cluster
        self._builder = builder
        self._store = store
        self._last: SegmentJob | None = None

    def run(self, job: SegmentJob, *, is_additional: bool = False) -> JobResult | None:
        """Run a job to its end.

        Args:
            job: the job.
            is_additional: see ``Observer.began``.

        Returns:
            Its result; None: it ran in one task, which has given up.

        Raises:
            Exception: what the cluster raises; see ``Failures``.
        """
        self._settings.observer.began(job.run, is_additional=is_additional)
        # Tasks of an earlier start, which had other options, may have left residuals.
        has_rows = job.materialises or self._builder.has_rounds(job.segment)
        place = self._store.place_for(job.run, job.input, has_rows=has_rows)
        if place is not None:
            return self._run_stored(job, place)
        result = self._run(job)
        if result is None:
            return None
        reports = result.reports
        ran, stopped_at = job.levels, None
        if job.in_one_task:
            ran, stopped_at = _levels_run(job, reports)
        last = _of_last_level(job, ran, reports)
        made_by = Attempts.of(report.attempt for report in last)
        returned = _returned_by(last) if result.returned is None else result.returned
        return _result(
            job,
            ran,
            reports,
            OutputRows(
                result.rows,
                {job.run: made_by},
                None if returned is None else tuple(returned),
                returns_all=result.returned is not None,
            ),
            OutputPart(job.run, made_by),
            stopped_at,
        )

    def _run_stored(self, job: SegmentJob, stored: JobPlace) -> JobResult:
        """Run the tasks of a job that no earlier attempt has finished."""
        place, reports = stored.place, list(stored.finished)
        if job.exchanges_source:
            job = replace(job, partitions=place.tasks)
        if len(place.finished) < place.tasks or not place.tasks:
            result = self._run(replace(job, place=place))
            assert result is not None  # no first task, which may give up
            reports += result.reports
        last = _of_last_level(job, job.levels, reports)
        attempts = tuple(report.attempt for report in last)
        rows = self._store.rows_of(job.run, attempts if place.has_rows else ())
        returned = _returned_by(last)
        if returned is not None:
            rows = replace(rows, returned=tuple(returned))
        part = OutputPart(job.run, Attempts.of(attempts), attempts)
        return _result(job, job.levels, reports, rows, part)

    def _run(self, job: SegmentJob) -> LevelsResult | None:
        self._last = job
        return self._cluster.run(
            LevelsJob(
                title=segment_title(self._plan, job.segment),
                name=f"segment-{job.segment.id}-run-{job.run}"
                if job.materialises and job.place is None
                else None,
                programs=self._programs(job),
                source=job.source.rows,
                has_marks=bool(job.source.made_by),
                spreads_source=job.spreads_source,
                single_task_budget_s=self._settings.single_task_budget_s
                if job.in_one_task
                else None,
            )
        )

    def forget_last(self) -> None:
        """Forget the last job: errors from now on have nothing to do with it."""
        self._last = None

    def steps_blamed_for(self, segment: Segment, error: Exception) -> str:
        """Return the names of the steps of the level that failed, or else of the segment."""
        if self._last is None:
            return segment_title(self._plan, segment)
        if self._last.in_one_task:
            number = level_in(whole_message_of(error))
            levels = segment.levels
            if number is not None:
                levels = (levels[number - segment.first_level],)
            return title_of(self._plan, levels)
        return blamed_levels(self._plan, segment, self._last.levels, self._cluster, error)

    def _programs(self, job: SegmentJob) -> Sequence[LevelProgram]:
        """Return the programs of the levels."""
        return [
            self._builder.level(
                job.segment,
                index,
                job.partitions,
                job.side_inputs,
                job=job.levels,
                round_budget_s=job.round_budget_s,
                longest_round_s=self._settings.longest_round_s,
                run=job.run,
                fed=job.fed if index == job.levels[0] else (),
                in_one_task=job.in_one_task,
                is_round=job.is_round,
                place=job.place,
            )
            for index in job.levels
        ]


def blamed_levels(
    plan: Plan, segment: Segment, levels: range, cluster: Failures, error: Exception
) -> str:
    """Return the names of the steps of the level that failed, or else of the segment.

    Args:
        plan: the plan.
        segment: the segment that has failed.
        levels: its levels that were running.
        cluster: on which they ran.
        error: the cluster's exception.
    """
    after = cluster.levels_after(error)
    if after is None or after >= len(levels):
        return segment_title(plan, segment)
    return title_of(plan, [segment.levels[levels[-1 - after]]])


def _of_last_level(job: SegmentJob, levels: range, reports: Iterable[Report]) -> list[Report]:
    """Return the reports of the tasks that have made the output, by partition."""
    number = LevelRange(job.segment, levels).last
    return sorted(
        (report for report in reports if report.level == number),
        key=lambda report: report.partition,
    )


def _result(
    job: SegmentJob,
    levels: range,
    reports: Sequence[Report],
    rows: OutputRows,
    part: OutputPart,
    stopped_at: int | None = None,
) -> JobResult:
    """Return the result of a job.

    Args:
        job: the job.
        levels: the indices of the levels that have run.
        reports: the reports of the tasks.
        rows: the rows of the last level.
        part: by which attempts they were made.
        stopped_at: see ``JobResult``.
    """
    residuals: Counter[DestinationId] = Counter()
    for report in reports:
        residuals.update({DestinationId(dest): n.count for dest, n in report.residuals.items()})
    return JobResult(
        rows=rows,
        part=part,
        reports=reports,
        residuals=residuals,
        verdict=judge(
            reports,
            _tasks_of(job, levels),
            first=LevelRange(job.segment, levels).first,
            materialised=job.source.made_by,
        ),
        emitted_bytes=sum(each.emitted_bytes for each in _of_last_level(job, levels, reports)),
        stopped_at=stopped_at,
    )


def _tasks_of(job: SegmentJob, levels: range) -> Mapping[int, int]:
    """Return the number of tasks after each exchange, by the number of the level after it.

    Args:
        job: the job.
        levels: the indices of the levels that run.
    """
    tasks = 1 if job.in_one_task else job.partitions
    return {
        job.segment.first_level + index: tasks
        for index in levels
        if job.segment.levels[index].has_exchange or (job.spreads_source and index == job.levels[0])
    }


def _returned_by(reports: Sequence[Report]) -> list[pa.RecordBatch] | None:
    """Return the rows that the reports have brought; None: those of some tasks were too many."""
    found: list[pa.RecordBatch] = []
    for report in reports:
        if report.returned_rows is None:
            return None
        found += schema.decoded_batches(report.returned_rows)
    return found


def _levels_run(job: SegmentJob, reports: Sequence[Report]) -> tuple[range, int | None]:
    """Return the levels that the only task has run, and at which one it has stopped."""
    number = max((report.level for report in reports), default=job.segment.first_level)
    reached = number - job.segment.first_level
    ran = job.levels[: job.levels.index(reached) + 1]
    if any(each.level == number and (each.unread_rows or each.residuals) for each in reports):
        return ran, reached
    return ran, None if reached == job.levels[-1] else reached + 1


def segment_title(plan: Plan, segment: Segment) -> str:
    """Name a segment by the steps it runs, for the Spark UI and for messages."""
    if segment.table_write is not None:
        return plan.graph.transforms[segment.table_write].name
    return title_of(plan, segment.levels)


def title_of(plan: Plan, levels: Sequence[Level]) -> str:
    """Name levels by the steps they run."""
    names = [plan.stages[stage].name for level in levels for stage in level.stages]
    text = " → ".join(names)
    return text if len(text) <= 200 else text[:199] + "…"
