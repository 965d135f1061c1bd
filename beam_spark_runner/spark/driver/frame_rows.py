"""Rows of the engine as frames of Spark."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.driving.output_rows import ClusterRows, OutputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import attempts_among
from beam_spark_runner.scheduling.attempts import Attempts
from beam_spark_runner.scheduling.segment_output import SegmentOutput
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.materialise import FilesInSharedStorage
from beam_spark_runner.spark.worker.task_functions import feeding_function


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Rows that a frame reads or computes; see ``ClusterRows``."""

    frame: DataFrame

    def rows_for(self, dests: Iterable[int]) -> "FrameRows":
        """See ``ClusterRows``."""
        wanted = ", ".join(map(str, (schema.CONTROL, *dests)))
        return FrameRows(self.frame.filter(f"(dest & {schema.DEST_MASK}) in ({wanted})"))

    def united_with(self, other: ClusterRows) -> "FrameRows":
        """See ``ClusterRows``."""
        return FrameRows(self.frame.union(frame_of(other)))

    def attempts(self) -> dict[int, Attempts]:
        """See ``ClusterRows``. Runs a Spark job."""
        return frames.collect_marks(self.frame)


@dataclass(frozen=True, slots=True)
class DriverRows:
    """Rows that the driver has; see ``ClusterRows``. Few of them are ever read by Spark.

    Attributes:
        spark: the session.
        batches: the rows.
    """

    spark: SparkSession
    batches: Sequence[pa.RecordBatch]

    @property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        return frame_of_rows(self.spark, schema.coded_batches(self.batches))

    def rows_for(self, dests: Iterable[int]) -> "DriverRows":
        """See ``ClusterRows``."""
        wanted = np.array([schema.CONTROL, *dests], np.int32)
        return DriverRows(self.spark, [schema.rows_to(wanted, batch) for batch in self.batches])

    def united_with(self, other: ClusterRows) -> FrameRows:
        """See ``ClusterRows``."""
        return FrameRows(self.frame.union(frame_of(other)))

    def attempts(self) -> dict[int, Attempts]:
        """See ``ClusterRows``."""
        return attempts_among(self.batches)


def frame_of(rows: ClusterRows) -> DataFrame:
    """Return the frame of rows that this room has made."""
    assert isinstance(rows, FrameRows | DriverRows)
    return rows.frame


def reopened(output: SegmentOutput, storage: FilesInSharedStorage) -> OutputRows:
    """Return the rows of output that this or another Spark session has materialised.

    Nothing is read yet; ``is_complete`` checks that all of it is there.

    Raises:
        ValueError: no rows were materialised, or they are on the executors of one session.
    """
    paths = [part.path for part in output.parts if part.path is not None]
    if not paths or not output.can_be_reopened:
        raise ValueError(f"this output is not in shared storage: {output.parts}")
    made_by = output.made_by
    return OutputRows.union(
        [OutputRows(FrameRows(storage.reopen(path, frames.SCHEMA)), made_by) for path in paths]
    )


def one_row(spark: SparkSession) -> DataFrame:
    """Return the input of one task, which gets its rows in its program."""
    return spark.range(0, 1, 1, 1)


def frame_of_rows(spark: SparkSession, rows: bytes) -> DataFrame:
    """Return a frame of rows that the driver has; see ``schema.coded_batches``."""
    return one_row(spark).mapInArrow(feeding_function(rows), frames.SCHEMA)


def frame_of_elements(spark: SparkSession, elements: Mapping[DestinationId, bytes]) -> DataFrame:
    """Return a row for each of some encoded elements, in a frame that needs no Python worker."""
    count = len(elements)
    # SQL, not ``functions``: those work by a global switch on classic Spark or on Connect, and a
    # process may have sessions of both.
    ids = ", ".join(str(int(dest)) for dest in elements)
    values = ", ".join(
        f"X'{value.hex()}'" if value else "cast('' as binary)" for value in elements.values()
    )
    return spark.range(0, count, 1, 1).selectExpr(
        f"element_at(array({ids}), cast(id + 1 as int)) as dest",
        "cast(0 as bigint) as route",
        "cast(0 as bigint) as `order`",
        "cast(null as binary) as key",
        f"element_at(array({values}), cast(id + 1 as int)) as value",
    )
