"""Physical plans that run once in each epoch, without being created again."""

import os
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.spark.pyspark_internals import (
    activate_session,
    collect,
    copy_to_run,
    physical_plan,
    serve_session,
)


def threads_are_pinned() -> bool:
    """Whether each thread of Python has its own in the JVM, and with it its own local properties.

    If not, the plan of each Spark job must be created again.
    """
    return os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "true"


class PlanCopier:
    """Runs physical plans of one job again and again.

    Threads: the one that makes it, which runs the plans; and its own, which copies them.

    Args:
        spark: the session, which is not a client of Spark Connect.
        job_id: the id of the job.

    Attributes:
        local_property: the name of the local property with the input of each Spark job.
    """

    def __init__(self, spark: SparkSession, job_id: str) -> None:
        serve_session(spark)
        self.local_property = f"beam_spark_runner.epoch.{job_id}"
        self._threads = ThreadPoolExecutor(
            1, "beam-plan", initializer=activate_session, initargs=(spark,)
        )

    def plan(self, frame: DataFrame) -> "CopiedPlan":
        """Return how Spark computes a frame, whose only column is binary."""
        return CopiedPlan(physical_plan(frame), self._threads)

    def close(self) -> None:
        """End the thread."""
        self._threads.shutdown()


class CopiedPlan:
    """A physical plan of which copies run. While one runs, the next one is made.

    Making one takes about as long as a task. See ``PlanCopier``.
    """

    def __init__(self, plan: Any, threads: Executor) -> None:
        self._plan, self._threads = plan, threads
        self._next = threads.submit(copy_to_run, plan)

    def collect(self) -> list[bytes]:
        """Run the plan, and return the values."""
        copy = self._next.result()
        self._next = self._threads.submit(copy_to_run, self._plan)
        return collect(copy)
