"""Runs pipelines whose rows are kept twice, as two task attempts may leave them."""

import contextlib
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import apache_beam as beam
from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import metrics_pb2
from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_loop import run_plan
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.job.run.system_clock import SystemClock
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.scheduling.attempts import Report
from beam_spark_runner.spark.broadcast import broadcast_file
from beam_spark_runner.spark.driver.cluster import SparkCluster, SparkClusterSettings
from beam_spark_runner.spark.driver.materialise import (
    CheckpointOnExecutors,
    Materialiser,
)
from beam_spark_runner.spark.driver.tables import open_tables
from beam_spark_runner.spark.sent_files import BroadcastFile
from beam_spark_runner.spark.session.open_session import open_session
from beam_spark_runner.storage.mounted_folder import MountedFolder
from tests.compiled import compile_pipeline
from tests.unit.portable.pipelines import proto_of


class KeptTwice:
    """Runs a frame twice and keeps both results, of which readers get the one or the other.

    Args:
        second: SQL, which of the rows are read from the second one; by the frame's number.
    """

    def __init__(self, second: Callable[[int, DataFrame], str | None]) -> None:
        self._second = second
        self.names: list[str] = []

    def with_users_settings(self, segment: Segment) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def materialise(self, frame: DataFrame, name: str) -> DataFrame:
        self.names.append(name)
        condition = self._second(len(self.names), frame)
        first = CheckpointOnExecutors().materialise(frame, name)
        if condition is None:
            return first
        second = CheckpointOnExecutors().materialise(frame, name)
        return first.filter(f"not ({condition})").union(second.filter(condition))


class _Nobody:
    def began(self, run: int, *, is_additional: bool = False) -> None:
        pass

    def reported(self, reports: Sequence[Report]) -> None:
        pass

    def accepted(self, reports: Sequence[Report]) -> None:
        pass


def run(
    spark: SparkSession,
    build: Callable[[beam.Pipeline], None],
    materialiser: Materialiser,
    folder: Path | None = None,
) -> dict[str, int]:
    """Run a pipeline, and return its counters of the namespace ``kept``."""
    plan = compile_pipeline(proto_of(build))
    with open_session(RunnerConfig(), spark) as session:
        tables = open_tables(plan, session)
    limits = Limits(
        max_attempts=1, row_limit_bytes=1 << 20, max_element_bytes=1 << 30, cache_bytes=1 << 20
    )

    job_id = f"kept-{random.getrandbits(40)}"
    settings = RunSettings(
        job_id=job_id,
        most_partitions=100,
        least_partitions=2,
        counts_bytes=True,
        limits=limits,
        check_cancelled=lambda: None,
        observer=_Nobody(),
        round_budget_s=None,
        single_task_budget_s=0.0,
    )
    cluster = SparkCluster(
        SparkClusterSettings(
            spark=spark,
            is_connect=False,
            job_id=job_id,
            materialiser=materialiser,
            folder=None if folder is None else MountedFolder(str(folder)),
            share=lambda path: BroadcastFile(broadcast_file(spark.sparkContext, path)),
            scope=lambda title: contextlib.nullcontext(),
            check_cancelled=lambda: None,
            tables=tables,
        )
    )
    tally = RunMetrics()
    run_plan(plan, settings, cluster, tally, SystemClock())
    return _counts(tally)


def _counts(tally: RunMetrics) -> dict[str, int]:
    found = {}
    for coded in tally.committed:
        info = metrics_pb2.MonitoringInfo.FromString(coded)
        if info.labels.get("NAMESPACE") == "kept":
            found[info.labels["NAME"]] = monitoring_infos.extract_counter_value(info)
    return found
