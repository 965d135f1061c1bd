"""Brings each partition of a streaming pipeline back to the host that has its shard.

Spark itself places the tasks after an exchange anywhere, and a shard whose local copy is elsewhere
is rebuilt from the checkpoint folder. But it places a task where it has cached what the task reads.
"""

import contextlib
import logging
from collections import Counter

from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.core import routing
from beam_spark_runner.scheduling.anchoring import should_spread
from beam_spark_runner.spark import pyspark_internals

_LOGGER = logging.getLogger(__name__)
_NO_STAGE = -1  # a destination that no row of a task has


class Anchor:
    """A cached frame with one row in each partition, partitioned as exchanges are.

    Spark unites frames that are partitioned alike partition by partition, and runs such a task
    where the cached part of its input is. If an executor is lost, so is its part of the cache: the
    next task that reads it runs anywhere, and the row is cached there.

    Args:
        spark: a classic session, of Spark 4.1 or later. Before it, rows are not united in place.
        partitions: the number of partitions of each exchange.

    Attributes:
        partitions: the number of partitions of each exchange.
        rows: the frame, cached; one row for each partition, with the columns of all rows.
        row: a cached frame of one row in one partition, for a level without an exchange.
        has_effect: whether this Spark unites rows in place, so that the anchor has an effect.

    Raises:
        Exception: what Spark raises; see ``spark_errors``. Nothing remains cached.
    """

    def __init__(self, spark: SparkSession, partitions: int) -> None:
        self._spark, self.partitions = spark, partitions
        routes = ", ".join(
            f"{route}L" for route in routing.routes_to_partitions(routing.CONTROL_CODE, partitions)
        )
        rows = spark.range(0, partitions, 1, 1).selectExpr(
            f"{_NO_STAGE} as dest",
            f"element_at(array({routes}), cast(id + 1 as int)) as route",
            "0L as `order`",
            "cast(null as binary) as key",
            "cast('' as binary) as value",
        )
        self._anchored = self._previous_executors = self._executors()
        self.rows = rows.repartition(partitions, "route").cache()
        self.row = spark.range(0, 1, 1, 1).cache()
        try:
            # This fills the cache. Without the column route in the result, Spark would forget that
            # rows are partitioned by it.
            exchanged = rows.filter(f"dest = {_NO_STAGE}").repartition(partitions, "route")
            columns = "route", "spark_partition_id() as place"
            united = exchanged.union(self.rows).selectExpr(*columns).collect()
            self.row.collect()
        except BaseException:
            self.release()
            raise
        counts = Counter(row["place"] for row in united)
        self.has_effect = counts == dict.fromkeys(range(partitions), 2)
        if not self.has_effect:
            _LOGGER.warning(
                "this Spark does not run the tasks of a partition where its cached row is: tasks "
                "run on any executor, where their state is rebuilt from the checkpoint folder"
            )

    def anchor_readers(self, exchanged: DataFrame) -> DataFrame:
        """Have the tasks that read a frame run where their partitions are anchored.

        Args:
            exchanged: rows that an exchange has brought to their partitions. The result has no
                others.
        """
        return exchanged.union(self.rows.filter(f"dest <> {_NO_STAGE}"))

    def is_outdated(self) -> bool:
        """Whether executors have joined that have too little to do. To be called once an epoch."""
        now = self._executors()
        slots = self._spark.sparkContext.defaultParallelism
        spread = should_spread(
            self.partitions, slots, self._anchored, self._previous_executors, now
        )
        self._previous_executors = now
        return spread

    def release(self) -> None:
        """Remove the rows from Spark's cache. Threads: any, after the last Spark job has ended."""
        with contextlib.suppress(Exception):  # Spark has been stopped, or its JVM has died
            self.rows.unpersist()
            self.row.unpersist()

    def _executors(self) -> frozenset[str]:
        return pyspark_internals.executors(self._spark.sparkContext)


class AnchorPolicy:
    """The anchor of a streaming job.

    It is replaced when executors have joined, or exchanges have another number of partitions.

    Threads: one at a time.

    Args:
        spark: see ``Anchor``.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._current: Anchor | None = None

    @property
    def anchor(self) -> Anchor | None:
        """Where tasks are to run; None: anywhere."""
        return self._current if self._current is not None and self._current.has_effect else None

    def refresh(self, partitions: int) -> None:
        """Create the anchor, or replace it if it does not fit any more.

        To be called when an epoch begins.

        Args:
            partitions: the number of partitions of each exchange.

        Raises:
            Exception: what Spark raises; see ``spark_errors``.
        """
        if self._current is not None:
            if self._current.partitions == partitions:
                if not (self._current.has_effect and self._current.is_outdated()):
                    return
                _LOGGER.info("executors have joined: partitions are redistributed")
            self.release()
        self._current = Anchor(self._spark, partitions)

    def release(self) -> None:
        """Remove the rows from Spark's cache. Threads: any, after the last Spark job has ended."""
        if self._current is not None:
            self._current.release()
            self._current = None
