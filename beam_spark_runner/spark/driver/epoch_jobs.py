"""The Spark jobs of a streaming plan: one after another over the same levels."""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import pyarrow as pa

from beam_spark_runner.core import routing
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.scheduling.attempts import Report, Verdict, judge
from beam_spark_runner.spark.driver.outputs import OutputRows
from beam_spark_runner.spark.driver.program_builder import ProgramBuilder
from beam_spark_runner.spark.driver.run_context import RunSettings
from beam_spark_runner.spark.driver.segment_job import SegmentJob, SegmentJobs
from beam_spark_runner.spark.pyspark_internals import (
    collect_again,
    physical_plan,
    serve_session,
)
from beam_spark_runner.spark.rows import schema
from beam_spark_runner.spark.rows.reports import coded_reports, collect_reports, reports_of

Rows = Sequence[tuple[int, bytes]]
"""Destinations, flags included, and values."""


class EpochJobs:
    """Runs the only segment of a streaming plan, once for each epoch.

    On classic Spark the levels are chained and planned once: what an epoch begins with travels as a
    local property of its Spark job, and each job runs the same physical plan again. A client of
    Spark Connect cannot set such a property, nor can a program in which Python's threads have no
    threads of their own in the JVM: there, the rows are part of the plan, which is made anew.

    Threads: the one that makes it.

    Args:
        plan: has one segment.
        settings: of the run.
    """

    def __init__(self, plan: Plan, settings: RunSettings) -> None:
        self._settings = settings
        (self._segment,) = plan.segments
        self._jobs = SegmentJobs(
            plan, settings, ProgramBuilder(plan, settings.job_id, settings.limits)
        )
        self._runs = 0
        self._levels = range(0)
        self._chained: tuple[Any, Mapping[int, int]] | None = None
        self._property: str | None = None
        has_threads = os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true"
        if has_threads and not settings.is_connect:
            self._property = f"beam_spark_runner.epoch.{settings.job_id}"
            serve_session(settings.spark)

    def run(self, rows: Rows, levels: range) -> tuple[Sequence[Report], Verdict]:
        """Run an epoch to its end.

        Args:
            rows: that the first level reads, each of its tasks all of them.
            levels: that run, at least one. The others have finished.

        Returns:
            Reports of tasks, those of repeated attempts included, and whether they agree.

        Raises:
            Exception: of Spark's; see ``spark_errors``.
        """
        self._runs += 1
        self._settings.observer.began(self._runs)
        if self._property is None:
            frame, tasks = self._jobs.frame(self._job(levels, rows))
            reports = collect_reports(frame)
        else:
            if levels != self._levels:
                # A row, since a frame without any is not run.
                frame, tasks = self._jobs.frame(self._job(levels, [(schema.CONTROL, b"")]))
                self._chained = physical_plan(coded_reports(frame)), tasks
                self._levels = levels
            assert self._chained is not None
            plan, tasks = self._chained
            context = self._settings.spark.sparkContext
            context.setLocalProperty(self._property, schema.text_of_batches(_batches(rows)))
            try:
                reports = reports_of(collect_again(plan))
            finally:
                context.setLocalProperty(self._property, cast("str", None))  # removes it
        return reports, judge(reports, tasks, first=levels[0], materialised={})

    def steps_blamed_for(self, error: Exception) -> str:
        """See ``SegmentJobs.steps_blamed_for``."""
        return self._jobs.steps_blamed_for(self._segment, error)

    def _job(self, levels: range, rows: Rows) -> SegmentJob:
        partitions = self._settings.least_partitions
        is_exchanged = self._segment.levels[levels[0]].has_exchange
        return SegmentJob(
            run=0,  # the same in all epochs, so that workers get the same closures
            segment=self._segment,
            levels=levels,
            source=_in_plan(self._settings, rows, partitions if is_exchanged else 1),
            is_spread=True,
            side_inputs={},
            partitions=partitions,
            materialises=False,
            round_budget_s=None,
            rows_from=self._property,
        )


def _in_plan(settings: RunSettings, rows: Rows, partitions: int) -> OutputRows:
    """Return the rows once for each partition."""
    control = routing.route_prefix(routing.CONTROL_CODE)
    literals = ", ".join(
        f"named_struct('dest', {dest}, 'route', {control}L, 'order', 0L, "
        f"'key', cast(null as binary), 'value', X'{value.hex()}')"
        for dest, value in rows
    )
    frame = settings.spark.range(0, partitions, 1, partitions)
    return OutputRows(frame.selectExpr(f"inline(array({literals}))"), {})


def _batches(rows: Rows) -> list[pa.RecordBatch]:
    control = routing.route_prefix(routing.CONTROL_CODE)
    batches = []
    for dest, alike in itertools.groupby(rows, key=lambda row: row[0]):
        values = [value for _, value in alike]
        routes = np.full(len(values), control, np.int64)
        batches.append(schema.batch_of(dest, routes, None, None, values))
    return batches
