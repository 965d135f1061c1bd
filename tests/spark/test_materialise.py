"""Rows that are written to shared storage: what was one task's is one task's again."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import MarkReader
from beam_spark_runner.engine.side_inputs.files import whole_rows
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.spark import frames
from beam_spark_runner.spark.driver.materialise import FilesInSharedStorage, file_settings
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.open_session import open_session
from beam_spark_runner.spark.versions import SparkVersion

pytestmark = pytest.mark.spark

MB = 1 << 20
VALUE_MB = 5
VALUES = 50  # of the first task: more than Spark's default reads in one


@pytest.fixture
def session(spark_session: Any) -> Iterator[SessionHandle]:
    with open_session(RunnerConfig(), spark_session) as handle:
        yield handle


def writes_long_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write 250 MB in pieces in the task that gets a zero, nearly nothing in others."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            for _ in range(VALUES if number == 0 else 1):
                value = os.urandom(VALUE_MB * MB if number == 0 else 10)
                for piece in schema.cut(value, MB):
                    yield schema.batch_of(
                        1 | schema.PIECE, np.zeros(1, np.int64), None, None, [piece]
                    )


def counts_whole_values(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Raise InvariantError if a value lacks a piece here."""
    found = whole_rows(batches, MarkReader())
    size = sum(len(value) for _, each in found for value in each.column(3).to_pylist())
    yield pa.record_batch({"size": pa.array([size], pa.int64())})


def test_a_folder_may_have_any_name(session: SessionHandle, tmp_path: Path) -> None:
    """Also one that is a pattern of others' names."""
    names = ("plain", "with space", "100%", "[a]{b,c}*?", "a")
    for number, folder in enumerate(tmp_path / name for name in names):
        storage = FilesInSharedStorage(session, str(folder))
        frame = session.spark.range(number, number + 1)
        assert storage.materialise(frame, "rows").collect() == [(number,)]


@pytest.mark.rare
def test_pieces_of_a_value_stay_together(session: SessionHandle, tmp_path: Path) -> None:
    storage = FilesInSharedStorage(session, str(tmp_path))
    written = session.spark.range(0, 3, 1, 3).mapInArrow(writes_long_values, frames.SCHEMA)
    kept = storage.materialise(written, "rows")
    sizes = [size for (size,) in kept.mapInArrow(counts_whole_values, "size long").collect()]
    assert sorted(sizes) == [10, 10, VALUES * VALUE_MB * MB]


@pytest.mark.rare
def test_row_groups_and_batches_are_small(session: SessionHandle, tmp_path: Path) -> None:
    """Also where small rows come first, from which Spark's writer would conclude the rest."""

    def writes_small_rows_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            for size, count in ((10, 15_000), (MB, 100)):
                values = [os.urandom(size) for _ in range(count)]
                yield schema.batch_of(1, np.zeros(count, np.int64), None, None, values)

    def sizes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sizes = [list(map(len, batch.column(4).to_pylist()))]
            yield pa.record_batch({"sizes": pa.array(sizes, pa.list_(pa.int64()))})

    import pyarrow.parquet as pq

    storage = FilesInSharedStorage(session, str(tmp_path))
    written = session.spark.range(0, 1, 1, 1).mapInArrow(writes_small_rows_first, frames.SCHEMA)
    kept = storage.materialise(written, "rows")
    (file,) = (tmp_path / "rows").glob("*.parquet")
    metadata = pq.ParquetFile(file).metadata
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    assert max(group.total_byte_size for group in groups) <= 40 * MB
    found = kept.mapInArrow(sizes, "sizes array<long>").collect()
    assert sum(len(sizes) for (sizes,) in found) == 15_100


def test_settings_are_the_runners_for_the_time_of_a_pipeline(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's would tear long values; a session that is not isolated gets them back."""
    key = "spark.sql.files.maxPartitionBytes"
    keys = file_settings(SparkVersion(4, 0))
    before = {key: spark_session.conf.get(key) for key in keys}

    def with_files(prepare: Callable[[], None] = lambda: None) -> dict[str, str]:
        prepare()
        config = RunnerConfig(spark_conf=((key, "1000"),))
        with open_session(config, spark_session) as handle:
            assert handle.spark.conf.get(key) == "1000"
            FilesInSharedStorage(handle, str(tmp_path))
            return {each: handle.spark.conf.get(each) for each in keys}

    def not_isolated() -> None:
        monkeypatch.setattr(
            "beam_spark_runner.spark.session.open_session._second_session", lambda _: None
        )

    for found in (with_files(), with_files(not_isolated)):
        assert int(found[key]) > 1 << 39
        assert {each: spark_session.conf.get(each) for each in keys} == before
