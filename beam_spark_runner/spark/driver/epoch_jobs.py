"""Runs the Spark jobs of a segment of a streaming plan: one for each epoch."""

import dataclasses
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from beam_spark_runner.core import routing
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.reports import reports_of
from beam_spark_runner.engine.task.stored_rows import StoredRows
from beam_spark_runner.plan.levels import LevelRange
from beam_spark_runner.plan.model import Plan, Segment
from beam_spark_runner.scheduling.attempts import (
    IN_THIS_JOB,
    Attempts,
    Failed,
    Report,
    Verdict,
    judge,
)
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.anchor import Anchor
from beam_spark_runner.spark.driver.outputs import OutputRows
from beam_spark_runner.spark.driver.plan_copies import CopiedPlan, PlanCopier
from beam_spark_runner.spark.driver.program_builder import ProgramBuilder
from beam_spark_runner.spark.driver.resident_task import ResidentTask
from beam_spark_runner.spark.driver.run_context import RunSettings
from beam_spark_runner.spark.driver.segment_job import SegmentJob, SegmentJobs, tasks_of
from beam_spark_runner.spark.worker.functions import reading_function

Rows = Sequence[tuple[int, bytes]]
"""Destinations, flags included, and values."""
_NOBODY = Attempts(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Rows that the tasks of the segment before have stored.

    Attributes:
        names: the names of the files, by partition.
        made_by: the attempts that have made the rows.
    """

    names: Sequence[str]
    made_by: Attempts


class EpochJobs:
    """Runs one segment of a streaming plan, once for each epoch.

    On classic Spark the levels are chained and planned once: the rows for the first level travel in
    a local property of the Spark job, and each job runs the same physical plan again. A client of
    Spark Connect cannot set such a property, nor can a program in which Python's threads have no
    threads of their own in the JVM: there, the rows are part of the plan, which is made anew.

    Threads: the one that makes it.

    Args:
        plan: the streaming plan.
        segment: the segment of the plan.
        settings: the settings of the run.
        builder: the program builder of the plan.
        copier: copies physical plans; None: the plan of each Spark job is made anew.
        resident: runs epochs that read rows of the driver, as long as the rows between their levels
            fit in memory; None: each is a Spark job.

    Attributes:
        planned_ns: when the last job was submitted to Spark, by the monotonic clock.
    """

    def __init__(
        self,
        plan: Plan,
        segment: Segment,
        settings: RunSettings,
        builder: ProgramBuilder,
        copier: PlanCopier | None,
        resident: ResidentTask | None,
    ) -> None:
        self._settings, self._segment = settings, segment
        self._jobs = SegmentJobs(plan, settings, builder)
        self._chained: _Chained | None = None
        self._copier, self._resident = copier, resident
        self._resident_jobs: dict[_Kind, _ResidentJob] = {}
        self.planned_ns = 0

    def run(
        self,
        source: Rows | Stored,
        levels: range,
        *,
        stores_rows: bool = False,
        anchor: Anchor | None = None,
    ) -> tuple[Sequence[Report], Verdict]:
        """Run the segment to its end, for one epoch.

        Args:
            source: the rows that the first level reads: those of the driver, of which each task
                reads all; or those that the segment before has stored.
            levels: the levels of the segment that run; at least one. The others have finished.
            stores_rows: another segment follows, for which the tasks of the last level store
                their rows.
            anchor: where tasks are to run; None: anywhere.

        Returns:
            Reports of tasks, those of repeated attempts included, and whether they agree.

        Raises:
            Exception: what Spark raises; see ``spark_errors``.
        """
        kind = _Kind(levels, isinstance(source, Stored), stores_rows, anchor)
        if self._resident is not None and not isinstance(source, Stored):
            job = self._resident_job(kind)
            self.planned_ns = time.monotonic_ns()
            found = self._resident.run(job.programs, _batches(source))
            if found is not None:
                first = LevelRange(self._segment, levels).first
                return found, judge(found, job.tasks, first=first, materialised={})
            self._resident = None
        if self._copier is None:
            spark_job = self._job(source, kind)
            frame, tasks = self._jobs.frame(spark_job), tasks_of(spark_job, levels)
            self.planned_ns = time.monotonic_ns()
            reports = frames.collect_reports(frame)
        else:
            chained = self._kept(kind, self._copier)
            tasks = chained.tasks
            context, name = self._settings.spark.sparkContext, self._copier.local_property
            context.setLocalProperty(name, _text_of(source))
            self.planned_ns = time.monotonic_ns()
            try:
                reports = reports_of(chained.plan.collect())
            finally:
                context.setLocalProperty(name, cast("str", None))  # removes it
        first = LevelRange(self._segment, levels).first
        for report in reports:
            if report.level < first and report.failure is not None:  # stored rows could not be read
                return reports, Failed(report.failure)
        made_by = {IN_THIS_JOB: source.made_by} if isinstance(source, Stored) else {}
        return reports, judge(reports, tasks, first=first, materialised=made_by)

    def _resident_job(self, kind: "_Kind") -> "_ResidentJob":
        if kind not in self._resident_jobs:
            job = dataclasses.replace(self._job([(schema.CONTROL, b"")], kind), rows_from=None)
            self._resident_jobs[kind] = _ResidentJob(
                self._jobs.programs(job), tasks_of(job, job.levels)
            )
        return self._resident_jobs[kind]

    def _kept(self, kind: "_Kind", copier: PlanCopier) -> "_Chained":
        """Return the plan of this kind: the last job's, if it was of the same kind."""
        if self._chained is None or self._chained.kind != kind:
            # Placeholders: the local property replaces them. Spark does not run an empty frame.
            nothing: Rows | Stored = [(schema.CONTROL, b"")]
            if kind.is_stored:
                nothing = Stored(names=[""] * self._settings.least_partitions, made_by=_NOBODY)
            job = self._job(nothing, kind)
            frame, tasks = self._jobs.frame(job), tasks_of(job, job.levels)
            self._chained = _Chained(kind, copier.plan(frames.coded_reports(frame)), tasks)
        return self._chained

    @property
    def _property(self) -> str | None:
        """The local property with the input of a Spark job; None: the input is in the plan."""
        return None if self._copier is None else self._copier.local_property

    def steps_blamed_for(self, error: Exception) -> str:
        """See ``SegmentJobs.steps_blamed_for``."""
        return self._jobs.steps_blamed_for(self._segment, error)

    def _job(self, source: Rows | Stored, kind: "_Kind") -> SegmentJob:
        levels, is_stored, stores_rows, anchor = kind
        partitions = self._settings.least_partitions
        is_exchanged = self._segment.levels[levels[0]].has_exchange
        if isinstance(source, Stored):
            rows = self._reading(source, LevelRange(self._segment, levels).first - 1)
        else:
            rows = _in_plan(source, self._one_for_each(is_exchanged, anchor))
        return SegmentJob(
            run=0,  # the same in all epochs, so that workers get the same closures
            segment=self._segment,
            levels=levels,
            source=rows,
            is_spread=not is_stored,
            side_inputs={},
            partitions=partitions,
            materialises=False,
            round_budget_s=None,
            rows_from=None if is_stored else self._property,
            stores_rows=stores_rows,
            anchor=anchor,
        )

    def _one_for_each(self, is_exchanged: bool, anchor: Anchor | None) -> DataFrame:
        """Return a frame with one row for each task of the first level, where that is to run."""
        if anchor is not None:
            return anchor.rows if is_exchanged else anchor.row
        tasks = self._settings.least_partitions if is_exchanged else 1
        return self._settings.spark.range(0, tasks, 1, tasks)

    def _reading(self, stored: Stored, level: int) -> OutputRows:
        """Return the rows that the level before has stored."""
        partitions = self._settings.least_partitions
        reads = reading_function(
            StoredRows(
                places=self._settings.shards,
                level=level,
                partitions=partitions,
                max_attempts=self._settings.limits.max_attempts,
            ),
            self._property,
        )
        names = ", ".join(f"'{name}'" for name in stored.names)
        frame = self._settings.spark.range(0, partitions, 1, partitions)
        frame = frame.selectExpr(f"element_at(array({names}), cast(id + 1 as int)) as name")
        return OutputRows(frame.mapInArrow(reads, frames.SCHEMA), {})


class _Kind(NamedTuple):
    """What the physical plan of a Spark job depends on."""

    levels: range
    is_stored: bool  # stored rows are read
    stores_rows: bool
    anchor: Anchor | None


class _ResidentJob(NamedTuple):
    programs: Sequence[LevelProgram]
    tasks: Mapping[int, int]  # see ``tasks_of``


class _Chained(NamedTuple):
    kind: _Kind
    plan: CopiedPlan
    tasks: Mapping[int, int]  # see ``SegmentJobs.frame``


def _in_plan(rows: Rows, one_for_each: DataFrame) -> OutputRows:
    """Return the rows once for each partition.

    Args:
        rows: the rows of each partition.
        one_for_each: a frame with one row in each partition.
    """
    control = routing.route_prefix(routing.CONTROL_CODE)
    literals = ", ".join(
        f"named_struct('dest', {dest}, 'route', {control}L, 'order', 0L, "
        f"'key', cast(null as binary), 'value', X'{value.hex()}')"
        for dest, value in rows
    )
    return OutputRows(one_for_each.selectExpr(f"inline(array({literals}))"), {})


def _text_of(source: Rows | Stored) -> str:
    """Return the input of a Spark job as the value of a local property."""
    if isinstance(source, Stored):
        return "\n".join(source.names)
    return schema.text_of_batches(_batches(source))


def _batches(rows: Rows) -> list[pa.RecordBatch]:
    control = routing.route_prefix(routing.CONTROL_CODE)
    batches = []
    for dest, alike in itertools.groupby(rows, key=lambda row: row[0]):
        values = [value for _, value in alike]
        routes = np.full(len(values), control, np.int64)
        batches.append(schema.batch_of(dest, routes, None, None, values))
    return batches
