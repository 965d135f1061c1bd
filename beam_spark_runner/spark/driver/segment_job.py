"""Runs one Spark job: some levels of a segment, over the rows that they read.

Nothing is decided here: the callers (``batch``, ``epoch_jobs``) choose the levels, and act on the
verdict.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.engine.level_stacks import level_in
from beam_spark_runner.engine.program import LevelProgram, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.plan.levels import LevelRange
from beam_spark_runner.plan.model import Level, Plan, Segment
from beam_spark_runner.scheduling.attempts import Attempts, Report, Verdict, judge
from beam_spark_runner.scheduling.outputs import OutputPart
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.anchor import Anchor
from beam_spark_runner.spark.driver.exchange import exchange
from beam_spark_runner.spark.driver.outputs import OutputRows
from beam_spark_runner.spark.driver.program_builder import ProgramBuilder
from beam_spark_runner.spark.driver.run_context import RunSettings
from beam_spark_runner.spark.driver.spark_errors import stages_after
from beam_spark_runner.spark.worker.functions import (
    feeding_function,
    first_task_function,
    level_function,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentJob:
    """What one Spark job is to do.

    Attributes:
        run: its number among the jobs of the pipeline.
        segment: the segment that runs.
        levels: the consecutive levels of the segment that run.
        source: the rows that the first level reads.
        is_spread: the source has a partition for each of the first level's tasks, which thus need
            no exchange.
        in_one_task: one task runs the levels, as far as it comes; see ``task.first_task``.
        spreads_source: the rows of the source are spread over the tasks of the first level, which
            would else be as few as those that made them.
        side_inputs: the gathered side inputs that the levels read.
        partitions: the number of partitions of each exchange.
        materialises: whether its output is materialised.
        round_budget_s: the time for splittable DoFns; None: they process all restrictions.
        rows_from: see ``EpochPart``, of the first level.
        fed: rows that the driver has, which the first level reads in place of the source.
        stores_rows: see ``EpochPart``, of the last level.
        is_round: see ``BatchPart``.
        anchor: where the tasks after an exchange are to run; None: anywhere.
    """

    run: int
    segment: Segment
    levels: range
    source: OutputRows
    side_inputs: Mapping[DestinationId, SideInputRows]
    partitions: int
    materialises: bool
    round_budget_s: float | None
    is_spread: bool = False
    in_one_task: bool = False
    spreads_source: bool = False
    rows_from: str | None = None
    fed: Sequence[pa.RecordBatch] = ()
    stores_rows: bool = False
    is_round: bool = False
    anchor: Anchor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a Spark job.

    Attributes:
        rows: the rows of its last level.
        part: where they were materialised, and by which attempts.
        reports: the reports of its tasks, including those of repeated attempts.
        verdict: whether the output is that of one attempt at each task.
        emitted_bytes: the size of the output, as Arrow holds it.
        stopped_at: the index of the level at which the only task has stopped; None: all levels
            have run, with all their tasks.
    """

    rows: OutputRows
    part: OutputPart
    reports: Sequence[Report]
    verdict: Verdict
    emitted_bytes: int
    stopped_at: int | None = None


class SegmentJobs:
    """Runs the Spark jobs of one plan.

    Threads: one at a time.
    """

    def __init__(self, plan: Plan, settings: RunSettings, builder: ProgramBuilder) -> None:
        self._plan = plan
        self._settings = settings
        self._builder = builder
        self._last: SegmentJob | None = None

    def run(self, job: SegmentJob, *, is_beside: bool = False) -> JobResult:
        """Run a job to its end.

        Args:
            job: the job.
            is_beside: see ``Observer.began``.

        Raises:
            Exception: what Spark raises; see ``spark_errors``.
        """
        self._settings.observer.began(job.run, is_beside=is_beside)
        frame = self.frame(job)
        path = None
        if job.materialises:
            name = f"segment-{job.segment.id}-run-{job.run}"
            frame, path = self._settings.materialiser.materialise(frame, name)
        reports = frames.collect_reports(frame)
        ran, stopped_at = job.levels, None
        if job.in_one_task:
            ran, stopped_at = _levels_run(job, reports)
        part = LevelRange(job.segment, ran)
        last = [report for report in reports if report.level == part.last]
        made_by = Attempts.of(report.attempt for report in last)
        returned = [report.returned_rows for report in last if report.returned_rows is not None]
        return JobResult(
            rows=OutputRows(
                frame,
                {job.run: made_by},
                tuple(returned) if len(returned) == len(last) else None,
                returns_all=job.in_one_task,
            ),
            part=OutputPart(job.run, made_by, path),
            reports=reports,
            verdict=judge(
                reports, tasks_of(job, ran), first=part.first, materialised=job.source.made_by
            ),
            emitted_bytes=sum(report.emitted_bytes for report in last),
            stopped_at=stopped_at,
        )

    def forget_last(self) -> None:
        """Forget the last job: errors from now on have nothing to do with it."""
        self._last = None

    def steps_blamed_for(self, segment: Segment, error: Exception) -> str:
        """Return the names of the steps of the level that failed, or else of the segment."""
        if self._last is None:
            return segment_title(self._plan, segment)
        if self._last.in_one_task:
            number = level_in(str(error))
            blamed = (
                segment.levels if number is None else [segment.levels[number - segment.first_level]]
            )
            return _title(self._plan, blamed)
        after = stages_after(self._settings.spark, self._settings.job_id, error)
        levels = self._last.levels
        if after is None or after >= len(levels):
            return segment_title(self._plan, segment)
        return _title(self._plan, [segment.levels[levels[-1 - after]]])

    def frame(self, job: SegmentJob) -> DataFrame:
        """Return the frame that runs the levels."""
        self._last = job
        frame = job.source.frame
        if job.in_one_task:
            title = segment_title(self._plan, job.segment)
            budget_s = self._settings.single_task_budget_s
            function = first_task_function(self.programs(job), title, budget_s)
            return frame.mapInArrow(function, frames.SCHEMA)
        for index, program in zip(job.levels, self.programs(job), strict=True):
            is_first = index == job.levels[0]
            has_exchange = _has_exchange(job, index)
            if has_exchange and not (job.is_spread and is_first):
                if is_first and job.source.made_by:
                    frame = frames.spread_marks(frame, job.partitions)
                frame = exchange(
                    frame,
                    job.partitions,
                    self._builder.readers(job.segment, index),
                    control_first=program.batch is None or program.batch.may_pass_on,
                    anchor=job.anchor,
                )
            frame = frame.mapInArrow(level_function(program), frames.SCHEMA)
        return frame

    def programs(self, job: SegmentJob) -> Sequence[LevelProgram]:
        """Return the programs of the levels."""
        return [
            self._builder.level(
                job.segment,
                index,
                job.partitions,
                job.side_inputs,
                job=job.levels,
                round_budget_s=job.round_budget_s,
                run=job.run,
                rows_from=job.rows_from if index == job.levels[0] else None,
                fed=job.fed if index == job.levels[0] else (),
                in_one_task=job.in_one_task,
                stores_rows=job.stores_rows and index == job.levels[-1],
                is_round=job.is_round,
            )
            for index in job.levels
        ]


def tasks_of(job: SegmentJob, levels: range) -> Mapping[int, int]:
    """Return the number of tasks after each exchange, by the number of the level after it.

    Args:
        job: the job.
        levels: the indices of the levels that run.
    """
    tasks = 1 if job.in_one_task else job.partitions
    return {job.segment.first_level + i: tasks for i in levels if _has_exchange(job, i)}


def _has_exchange(job: SegmentJob, index: int) -> bool:
    is_spread = job.spreads_source and index == job.levels[0]
    return job.segment.levels[index].has_exchange or is_spread


def _levels_run(job: SegmentJob, reports: Sequence[Report]) -> tuple[range, int | None]:
    """Return the levels that the only task has run, and at which one it has stopped."""
    number = max((report.level for report in reports), default=job.segment.first_level)
    reached = number - job.segment.first_level
    ran = job.levels[: job.levels.index(reached) + 1]
    if any(each.level == number and (each.unread_rows or each.residuals) for each in reports):
        return ran, reached
    return ran, None if reached == job.levels[-1] else reached + 1


def one_row(spark: SparkSession) -> DataFrame:
    """Return the input of one task, which gets its elements in its program."""
    return spark.range(0, 1, 1, 1)


def frame_of_rows(spark: SparkSession, rows: bytes) -> DataFrame:
    """Return a frame of rows that the driver has; see ``schema.coded_batches``."""
    return one_row(spark).mapInArrow(feeding_function(rows), frames.SCHEMA)


def made_rows(elements: Mapping[DestinationId, bytes]) -> list[pa.RecordBatch]:
    """Return rows of encoded elements that the driver makes, by destination."""
    return [
        schema.batch_of(dest, np.zeros(1, np.int64), None, None, [element])
        for dest, element in elements.items()
    ]


def fed_rows(spark: SparkSession, fed: Mapping[DestinationId, bytes]) -> OutputRows:
    """Return the rows of ``made_rows`` as a frame that needs no Python worker."""
    count = len(fed)
    # SQL, not ``functions``: those work by a global switch on classic Spark or on Connect, and a
    # process may have sessions of both.
    ids = ", ".join(str(int(dest)) for dest in fed)
    values = ", ".join(
        f"X'{value.hex()}'" if value else "cast('' as binary)" for value in fed.values()
    )
    frame = spark.range(0, count, 1, 1).selectExpr(
        f"element_at(array({ids}), cast(id + 1 as int)) as dest",
        "cast(0 as bigint) as route",
        "cast(0 as bigint) as `order`",
        "cast(null as binary) as key",
        f"element_at(array({values}), cast(id + 1 as int)) as value",
    )
    return OutputRows(frame, {})


def segment_title(plan: Plan, segment: Segment) -> str:
    """Name a segment by the steps it runs, for Spark's UI and for messages."""
    if segment.table_write is not None:
        return plan.graph.transforms[segment.table_write].name
    return _title(plan, segment.levels)


def _title(plan: Plan, levels: Sequence[Level]) -> str:
    names = [plan.stages[stage].name for level in levels for stage in level.stages]
    text = " → ".join(names)
    return text if len(text) <= 200 else text[:199] + "…"
