"""Rows of the engine as frames of Spark."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.driving.output_rows import ClusterRows
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import attempts_among
from beam_spark_runner.engine.task.stored_output import OutputReading
from beam_spark_runner.scheduling.attempts import Attempts
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.worker.task_functions import feeding_function, output_function


@dataclass(frozen=True, slots=True)
class FrameRows:
    """Rows that a frame reads or computes; see ``ClusterRows``."""

    frame: DataFrame

    def rows_for(self, dests: Iterable[int]) -> "FrameRows":
        """See ``ClusterRows``."""
        chosen = ", ".join(map(str, (schema.CONTROL, *dests)))
        return FrameRows(self.frame.filter(f"(dest & {schema.DEST_MASK}) in ({chosen})"))

    def united_with(self, other: ClusterRows) -> "FrameRows":
        """See ``ClusterRows``."""
        return FrameRows(self.frame.union(frame_of(other)))

    def attempts(self) -> dict[int, Attempts]:
        """See ``ClusterRows``. Runs a Spark job."""
        return frames.collect_marks(self.frame)


@dataclass(frozen=True, slots=True)
class NoRows:
    """The input of a task that gets its rows in its program; see ``ClusterRows``.

    Attributes:
        spark: the session.
    """

    spark: SparkSession

    @property
    def frame(self) -> DataFrame:
        """A frame of one row, which starts the task, and means nothing to it."""
        return one_row(self.spark)

    def rows_for(self, dests: Iterable[int]) -> "NoRows":
        """See ``ClusterRows``."""
        return self

    def united_with(self, other: ClusterRows) -> ClusterRows:
        """See ``ClusterRows``."""
        return other

    def attempts(self) -> dict[int, Attempts]:
        """See ``ClusterRows``."""
        return {}


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
        chosen = np.array([schema.CONTROL, *dests], np.int32)
        return DriverRows(self.spark, [schema.rows_to(chosen, batch) for batch in self.batches])

    def united_with(self, other: ClusterRows) -> FrameRows:
        """See ``ClusterRows``."""
        return FrameRows(self.frame.union(frame_of(other)))

    def attempts(self) -> dict[int, Attempts]:
        """See ``ClusterRows``."""
        return attempts_among(self.batches)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Rows that tasks have stored in files; see ``ClusterRows``. Each file is one partition.

    Attributes:
        spark: the session.
        reading: which rows of which files are read.
        others: frames of other rows, whose partitions come after those of the files.
    """

    spark: SparkSession
    reading: OutputReading
    others: tuple[DataFrame, ...] = ()

    @property
    def numbers(self) -> DataFrame:
        """A frame of the files' numbers, each in a partition."""
        count = len(self.reading.files)
        return self.spark.range(0, count, 1, count)

    @property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        frame = self.numbers.mapInArrow(output_function(self.reading), frames.SCHEMA)
        for other in self.others:
            frame = frame.union(other)
        return frame

    def for_level(self, program: LevelProgram, *, exchanges: bool) -> "FileRows":
        """See ``OutputReading``."""
        return replace(self, reading=self.reading.for_level(program, exchanges=exchanges))

    def rows_for(self, dests: Iterable[int]) -> "FileRows":
        """See ``ClusterRows``."""
        chosen = frozenset(map(int, dests))
        files = tuple(file.rows_for(chosen) for file in self.reading.files)
        return replace(
            self,
            reading=replace(self.reading, files=files),
            others=tuple(FrameRows(frame).rows_for(chosen).frame for frame in self.others),
        )

    def united_with(self, other: ClusterRows) -> "FileRows":
        """See ``ClusterRows``."""
        if isinstance(other, FileRows) and not self.others:
            files = (*self.reading.files, *other.reading.files)
            return replace(self, reading=replace(self.reading, files=files), others=other.others)
        return replace(self, others=(*self.others, frame_of(other)))

    def attempts(self) -> dict[int, Attempts]:
        """See ``ClusterRows``. Runs a Spark job."""
        return frames.collect_marks(self.rows_for(()).frame)


def frame_of(rows: ClusterRows) -> DataFrame:
    """Return the frame of rows that this room has made."""
    assert isinstance(rows, FrameRows | NoRows | DriverRows | FileRows)
    return rows.frame


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
