"""Runs the Spark jobs of a streaming plan: one for each segment in each epoch."""

import dataclasses
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.core import routing
from beam_spark_runner.driving.cluster import EpochJob, EpochResult, StoredInput
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.driver_rows import Rows, control_rows
from beam_spark_runner.engine.rows.reports import reports_of
from beam_spark_runner.engine.task.stored_rows import StoredRows
from beam_spark_runner.scheduling.attempts import Attempts
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.anchor import Anchor, AnchorPolicy
from beam_spark_runner.spark.driver.level_frames import level_frame
from beam_spark_runner.spark.driver.plan_copies import CopiedPlan, PlanCopier
from beam_spark_runner.spark.driver.profiled import ProfileFor
from beam_spark_runner.spark.driver.resident_task import ResidentTask
from beam_spark_runner.spark.worker.task_functions import reading_function

_NO_ATTEMPTS = Attempts(0, 0)


class Epochs:
    """Runs the levels of epochs.

    On classic Spark the levels are chained and planned once: the rows for the first level travel in
    a local property of the Spark job, and each job runs the same physical plan again. A client of
    Spark Connect cannot set such a property, nor can a program in which Python's threads have no
    separate threads in the JVM: there, the rows are part of the plan, which is created again.

    Threads: the one that makes it.

    Args:
        spark: the session.
        copier: copies physical plans; None: the plan of each Spark job is created again.
        scope: names Spark jobs.
        check_cancelled: raises if the pipeline is to end.
        is_anchored: whether each partition stays on its host.
        in_one_task: whether one Spark task runs many epochs, as long as the rows between their
            levels fit in memory; see ``ResidentTask``.
        profile_for: returns the resource profile of a level.
        job_name: the user's name of the pipeline.
    """

    def __init__(
        self,
        spark: SparkSession,
        copier: PlanCopier | None,
        scope: Callable[[str], AbstractContextManager[None]],
        check_cancelled: Callable[[], None],
        *,
        is_anchored: bool,
        in_one_task: bool,
        profile_for: ProfileFor,
        job_name: str | None,
    ) -> None:
        self._spark, self._copier = spark, copier
        self._scope, self._check_cancelled = scope, check_cancelled
        self._of_job = f" of {job_name}" if job_name else ""
        self._anchoring: AnchorPolicy | None = None
        self._is_anchored = is_anchored
        self._profile_for = profile_for
        self._in_one_task = in_one_task and copier is not None  # else threads share properties
        self._resident: ResidentTask | None = None
        self._chained: dict[
            int, _PlannedJob
        ] = {}  # by the last level: the last one of each segment

    def run(self, job: EpochJob, source: Rows | StoredInput) -> EpochResult:
        """Run levels to their end, for one epoch.

        Args:
            job: the levels.
            source: the rows that the first level reads.

        Raises:
            Exception: what Spark raises; see ``spark_errors``.
        """
        if self._in_one_task and not isinstance(source, StoredInput):
            resident = self._resident = self._resident or self._new_resident(job)
            submitted_ns = time.monotonic_ns()
            reports = resident.run_epoch(job.programs, control_rows(source))
            if reports is not None:
                return EpochResult(reports, submitted_ns)
            resident.close()
            self._resident, self._in_one_task = None, False
        if self._is_anchored and not isinstance(source, StoredInput):  # an epoch begins
            self._refresh_anchor(job.programs[0].partitions)
        if self._copier is None:
            frame = self._frame(job, source)
            submitted_ns = time.monotonic_ns()
            return EpochResult(frames.collect_reports(frame), submitted_ns)
        plan = self._plan(job, self._copier)
        context, name = self._spark.sparkContext, self._copier.local_property
        context.setLocalProperty(name, _text_of(source))
        submitted_ns = time.monotonic_ns()
        try:
            return EpochResult(reports_of(plan.collect()), submitted_ns)
        finally:
            context.setLocalProperty(name, cast("str", None))  # removes it

    def close(self) -> None:
        """Release Spark's resources. To be called after the last job."""
        if self._resident is not None:
            self._resident.close()
        if self._copier is not None:
            self._copier.close()
        if self._anchoring is not None:
            self._anchoring.release()

    def _new_resident(self, job: EpochJob) -> ResidentTask:
        title = f"epochs{self._of_job}: {job.title}"
        return ResidentTask(self._spark, self._scope, self._check_cancelled, title)

    def _refresh_anchor(self, partitions: int) -> None:
        if self._anchoring is None:
            self._anchoring = AnchorPolicy(self._spark)
        self._anchoring.refresh(partitions)

    @property
    def in_one_task(self) -> bool:
        """Whether one task runs all levels of an epoch."""
        return self._in_one_task

    @property
    def _anchor(self) -> Anchor | None:
        """Where tasks are to run; None: anywhere."""
        return None if self._anchoring is None else self._anchoring.anchor

    def _plan(self, job: EpochJob, copier: PlanCopier) -> CopiedPlan:
        """Return the plan of a job: the previous one of its segment, if it is of the same kind."""
        last = job.programs[-1].level
        planned = self._chained.get(last)
        if planned is None or planned.job is not job or planned.anchor is not self._anchor:
            # Placeholders: the local property replaces them. Spark does not run an empty frame.
            placeholder: Rows | StoredInput = [(schema.CONTROL, b"")]
            if job.reads_stored:
                placeholder = StoredInput(
                    names=[""] * job.programs[0].partitions, made_by=_NO_ATTEMPTS
                )
            frame = self._frame(job, placeholder)
            plan = copier.plan(frames.coded_reports(frame))
            planned = self._chained[last] = _PlannedJob(job, self._anchor, plan)
        return planned.plan

    @property
    def _property(self) -> str | None:
        """The local property with the input of a Spark job; None: the input is in the plan."""
        return None if self._copier is None else self._copier.local_property

    def _frame(self, job: EpochJob, source: Rows | StoredInput) -> DataFrame:
        """Return the frame that runs the levels."""
        first, *later = job.programs
        if isinstance(source, StoredInput):
            rows = self._stored_rows(source, first)
        else:
            rows = _in_plan(source, self._row_for_each_task(first))
            assert first.epoch is not None
            epoch = dataclasses.replace(first.epoch, rows_from=self._property)
            first = dataclasses.replace(first, epoch=epoch)
        return level_frame(
            rows,
            [first, *later],
            exchanges_source=job.reads_stored and first.has_exchange,
            anchor=self._anchor,
            profile_for=self._profile_for,
        )

    def _row_for_each_task(self, first: LevelProgram) -> DataFrame:
        """Return a frame with one row for each task of the first level, where that is to run."""
        if self._anchor is not None:
            return self._anchor.rows if first.has_exchange else self._anchor.row
        tasks = first.partitions if first.has_exchange else 1
        return self._spark.range(0, tasks, 1, tasks)

    def _stored_rows(self, stored: StoredInput, first: LevelProgram) -> DataFrame:
        """Return the rows that the previous level has stored."""
        partitions = first.partitions
        reads = reading_function(StoredRows.before_level(first), self._property)
        names = ", ".join(f"'{name}'" for name in stored.names)
        frame = self._spark.range(0, partitions, 1, partitions)
        frame = frame.selectExpr(f"element_at(array({names}), cast(id + 1 as int)) as name")
        return frame.mapInArrow(reads, frames.SCHEMA)


class _PlannedJob(NamedTuple):
    job: EpochJob
    anchor: Anchor | None
    plan: CopiedPlan


def _in_plan(rows: Rows, one_for_each: DataFrame) -> DataFrame:
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
    return one_for_each.selectExpr(f"inline(array({literals}))")


def _text_of(source: Rows | StoredInput) -> str:
    """Return the input of a Spark job as the value of a local property."""
    if isinstance(source, StoredInput):
        return "\n".join(source.names)
    return schema.text_of_batches(control_rows(source))
