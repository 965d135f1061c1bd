"""Rows that two task attempts have kept, and readers that get either's: what Spark may do."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.metrics import Metrics
from pyspark.sql import SparkSession

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import SparkJobError
from beam_spark_runner.driving.output_rows import AmbiguousRowsError, OutputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import mark_to_keep
from beam_spark_runner.scheduling.attempts import Attempts
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver import gather
from beam_spark_runner.spark.driver.frame_rows import FrameRows
from beam_spark_runner.spark.driver.materialise import (
    CheckpointOnExecutors,
)
from beam_spark_runner.spark.sent_files import SessionFile
from beam_spark_runner.storage.mounted_folder import MountedFolder
from tests.spark.kept_twice import KeptTwice, run
from tests.spark.returning import return_no_rows
from tests.unit.engine.side_inputs.test_side_input_files import edge_to_side_input

pytestmark = pytest.mark.spark
COUNT = 200


class Check(beam.DoFn):  # type: ignore[misc]
    """Counts the elements that the side input has, too."""

    def process(self, element: tuple[int, float], side: Any, is_map: bool) -> None:
        index, number = element
        found = side[index] if is_map else [value for each, value in side if each == index]
        Metrics.counter("kept", "same" if list(found) == [number] else "other").inc()


def numbers(p: beam.Pipeline) -> beam.PCollection:
    return (
        p
        | beam.Create(range(COUNT))
        | beam.Reshuffle()
        | "Draw"
        >> beam.Map(lambda index: (index, random.random())).with_output_types(tuple[int, float])
    )


def in_place(p: beam.Pipeline) -> None:
    drawn = numbers(p)
    _ = drawn | beam.ParDo(Check(), beam.pvalue.AsMultiMap(drawn), is_map=True)


def after_an_exchange(p: beam.Pipeline) -> None:
    drawn = numbers(p)
    moved = drawn | "Move" >> beam.Reshuffle()
    _ = moved | beam.ParDo(Check(), beam.pvalue.AsMultiMap(drawn), is_map=True)


def as_iterable(p: beam.Pipeline) -> None:
    drawn = numbers(p)
    _ = drawn | beam.ParDo(Check(), beam.pvalue.AsIter(drawn), is_map=False)


REPORTS = f"dest = {schema.REPORT}"


@pytest.mark.parametrize(
    ("build", "returns"),
    [
        pytest.param(in_place, True, id="in place, with reports"),
        pytest.param(in_place, False, id="in place, by a job", marks=pytest.mark.rare),
        pytest.param(after_an_exchange, True, id="exchanged, with reports", marks=pytest.mark.rare),
        pytest.param(after_an_exchange, False, id="exchanged, by a job", marks=pytest.mark.rare),
        pytest.param(as_iterable, True, id="iterable, with reports", marks=pytest.mark.rare),
        pytest.param(as_iterable, False, id="iterable, by a job"),
    ],
)
@pytest.mark.parametrize(
    "second",
    [
        pytest.param(f"not ({REPORTS})", id="all rows", marks=pytest.mark.rare),
        pytest.param(
            f"not ({REPORTS}) and spark_partition_id() % 2 = 1",
            id="rows of one task",
            marks=pytest.mark.rare,
        ),
        pytest.param(REPORTS, id="what the driver reads"),
    ],
)
def test_who_reads_other_rows_than_the_driver_makes_them_be_made_again(
    spark_session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[beam.Pipeline], None],
    second: str,
    returns: bool,
) -> None:
    if not returns:
        return_no_rows(monkeypatch)
    kept = KeptTwice(lambda number, _: second if number == 1 else None)
    assert run(spark_session, build, kept) == {"same": COUNT}
    assert len(kept.names) == 2


@pytest.mark.rare
@pytest.mark.parametrize("folder", [False, True], ids=["through the driver", "by tasks"])
@pytest.mark.parametrize("build", [in_place, as_iterable])
def test_large_side_inputs_are_judged_too(
    spark_session: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[beam.Pipeline], None],
    folder: bool,
) -> None:
    """The first tasks, which find out that they are large, read the right rows."""
    return_no_rows(monkeypatch)
    monkeypatch.setattr(gather, "SMALL_BYTES", 0)
    monkeypatch.setattr(gather, "MIN_SMALL_BYTES_OF_TASK", 0)
    kept = KeptTwice(lambda *_: None)
    assert run(spark_session, build, kept, tmp_path if folder else None) == {"same": COUNT}
    assert len(kept.names) == (1 if folder else 2)


@pytest.mark.rare
@pytest.mark.parametrize("build", [in_place, as_iterable])
@pytest.mark.parametrize(
    "second", ["part >= 0", "part = -1", "spark_partition_id() % 2 = 0 and part = -1"]
)
def test_parts_of_two_attempts_are_packed_again(
    spark_session: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    build: Callable[[beam.Pipeline], None],
    second: str,
) -> None:
    return_no_rows(monkeypatch)
    monkeypatch.setattr(gather, "SMALL_BYTES", 0)
    monkeypatch.setattr(gather, "MIN_SMALL_BYTES_OF_TASK", 0)
    monkeypatch.setattr(gather, "PART_BYTES", 500)
    kept = KeptTwice(lambda number, _: second if number == 2 else None)
    assert run(spark_session, build, kept) == {"same": COUNT}
    assert [name.startswith("side-input") for name in kept.names] == [False, True, True]


@pytest.mark.parametrize(
    ("is_multimap", "folder"),
    [
        pytest.param(True, True, id="multimap, by tasks"),
        pytest.param(False, True, id="iterable, by tasks", marks=pytest.mark.rare),
        pytest.param(True, False, id="multimap, through the driver", marks=pytest.mark.rare),
        pytest.param(False, False, id="iterable, through the driver"),
    ],
)
def test_every_way_to_gather_large_side_inputs_compares_attempts(
    spark_session: SparkSession, tmp_path: Path, is_multimap: bool, folder: bool
) -> None:
    edge = edge_to_side_input(is_multimap=is_multimap)
    found = spark_session.range(1, 3, 1, 2).selectExpr("cast(id as int) as attempt")
    frame = found.mapInArrow(rows_and_marks(int(edge.dest)), frames.SCHEMA).localCheckpoint()
    settings = gather.GatherSettings(
        job_id="job",
        partitions=3,
        folder=None,
        share=lambda path: SessionFile(str(path)),
        materialiser=CheckpointOnExecutors(),
    )

    def gather_rows_of(*attempts: int) -> None:
        """Gather what attempts 1 and 2 have kept, where these have reported."""
        rows = OutputRows(FrameRows(frame), {7: Attempts.of(attempts)})
        if folder:
            gather._by_tasks(rows, edge, "job/1", MountedFolder(str(tmp_path)), 3)
        else:
            gather._through_driver(rows, edge, "job/1", 100, settings)

    for others in ((1, 3), (1, 2, 3), (1,)):  # of another attempt, without one, with one too many
        with pytest.raises(AmbiguousRowsError) as raised:
            gather_rows_of(*others)
        assert raised.value.verdict.runs == {7}
    gather_rows_of(1, 2)


def rows_and_marks(dest: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a task function that makes what attempts 1 and 2 have kept in run 7."""

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for (attempt,) in (batch.column(0).to_pylist() for batch in batches if len(batch)):
            routes = np.arange(20, dtype=np.int64) << 50
            yield schema.batch_of(dest, routes, None, [b"key"] * 20, [b"value"] * 20)
            yield mark_to_keep(reports_pb2.AttemptMark(attempt=attempt, run=7))

    return make


@pytest.mark.rare
def test_rows_that_never_agree_end_the_pipeline(spark_session: SparkSession) -> None:
    kept = KeptTwice(lambda *_: REPORTS)
    with pytest.raises(SparkJobError, match=r"other attempts' rows .* \(8 times\)"):
        run(spark_session, in_place, kept)
