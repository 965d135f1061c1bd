"""Rows of a table that two task attempts have kept: those that were accepted are written."""

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from beam_spark_runner.core.errors import SparkJobError
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.spark.driver.materialise import CheckpointOnExecutors
from beam_spark_runner.transforms import WriteToSpark
from tests.spark.kept_twice import KeptTwice, run

pytestmark = pytest.mark.spark
COUNT = 200
NO_REPORT = f"dest != {schema.REPORT}"


class TurnsOver:
    """Keeps the first frame twice; from the n-th time on, its readers get the second result.

    Args:
        folder: empty.
        times: how often readers get the first one.
    """

    def __init__(self, folder: Path, times: int) -> None:
        self._folder = folder
        self._times = times
        self.names: list[str] = []

    def with_users_settings(self, segment: Segment) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def materialise(self, frame: DataFrame, name: str) -> DataFrame:
        self.names.append(name)
        rows = CheckpointOnExecutors().materialise(frame, name)
        if len(self.names) > 1:
            return rows
        again = CheckpointOnExecutors().materialise(frame, name)
        both = [
            kept.mapInArrow(some_times(self._folder, self._times, is_second), frame.schema)
            for is_second, kept in enumerate([rows, again])
        ]
        return both[0].union(both[1])


def some_times(
    folder: Path, times: int, is_second: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        readings = folder / str(context.partitionId())
        with readings.open("a") as file:
            file.write(".")
        is_over = readings.stat().st_size > times
        return batches if is_over == bool(is_second) else iter([])

    return pass_on


def drawn(target: Path, **arguments: Any) -> Callable[[beam.Pipeline], None]:
    def build(p: beam.Pipeline) -> None:
        _ = (
            p
            | beam.Create(range(COUNT))
            | beam.Reshuffle()
            | beam.Map(lambda index: {"index": index, "number": random.random()})
            | WriteToSpark(path=str(target), schema="index BIGINT, number DOUBLE", **arguments)
        )

    return build


def written(spark: SparkSession, target: Path) -> list[int]:
    return sorted(index for index, _ in spark.read.parquet(str(target)).collect())


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(f"{NO_REPORT} and spark_partition_id() % 2 = 1", id="rows of one task"),
        pytest.param(f"not ({NO_REPORT})", id="what the driver reads", marks=pytest.mark.rare),
    ],
)
def test_rows_of_other_attempts_are_made_again(
    spark_session: SparkSession, tmp_path: Path, second: str
) -> None:
    kept = KeptTwice(lambda number, _: second if number == 1 else None)
    run(spark_session, drawn(tmp_path / "out"), kept)
    assert len(kept.names) == 2
    assert written(spark_session, tmp_path / "out") == [*range(COUNT)]


@pytest.mark.parametrize(
    ("times", "made"),
    # Readers: the driver, for reports; the count of the rows; the write.
    [
        pytest.param(2, 2, id="in the write"),
        pytest.param(3, 1, id="after all", marks=pytest.mark.rare),
    ],
)
def test_tasks_of_the_write_that_read_others_write_nothing(
    spark_session: SparkSession, tmp_path: Path, times: int, made: int
) -> None:
    (tmp_path / "readings").mkdir()
    kept = TurnsOver(tmp_path / "readings", times)
    run(spark_session, drawn(tmp_path / "out"), kept)
    assert len(kept.names) == made
    assert written(spark_session, tmp_path / "out") == [*range(COUNT)]


def test_a_source_that_may_have_half_of_it_is_not_tried_again(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "readings").mkdir()
    kept = TurnsOver(tmp_path / "readings", times=2)
    with pytest.raises(SparkJobError, match="rows of attempts"):
        run(
            spark_session,
            drawn(tmp_path / "out", format="org.apache.spark.sql.parquet"),
            kept,
        )
    assert len(kept.names) == 1


def test_rows_that_are_lost_before_any_write_are_read_again(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    """Also if the format is one of which a failed write may leave half."""
    (tmp_path / "lost").touch()

    class Loses(KeptTwice):
        def materialise(self, frame: DataFrame, name: str) -> DataFrame:
            rows = super().materialise(frame, name)
            return rows.mapInArrow(losing(tmp_path), rows.schema)

    kept = Loses(lambda *_: None)
    run(spark_session, drawn(tmp_path / "out", format="org.apache.spark.sql.parquet"), kept)
    assert not (tmp_path / "lost").exists()
    assert written(spark_session, tmp_path / "out") == [*range(COUNT)]


def losing(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Fail all tasks of the second reading as Spark does when a block went with its executor."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        seen = folder / f"seen-{context.partitionId()}"
        if seen.exists() and (folder / "lost").exists():
            (folder / "lost").unlink(missing_ok=True)  # by several tasks at once
            raise RuntimeError("Checkpoint block rdd_1_0 not found")
        seen.touch()
        return batches

    return pass_on
