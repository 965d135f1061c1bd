"""Rows that go from one Spark job of an epoch to the next one, in files."""

import contextlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task.stored_rows import (
    RowFile,
    StoredRows,
    read_rows,
    rows_of,
)
from beam_spark_runner.state.stored_deltas import ShardStorageError

FULL = Path("/dev/full")


def nothing() -> None: ...


def places_in(folder: Path) -> ShardLocations:
    return ShardLocations(lineage="main", deltas=str(folder), local=None, key_groups=8)


def batch(dest: int, *values: bytes) -> pa.RecordBatch:
    return schema.batch_of(dest, np.arange(len(values), dtype=np.int64), None, None, values)


def stored(path: Path, *batches: pa.RecordBatch) -> Path:
    with RowFile(path, nothing) as file:
        for each in batches:
            file.write(each)
        file.finish()
    return path


def read(folder: Path, name: str) -> list[pa.RecordBatch]:
    places = places_in(folder)
    rows = StoredRows(places=places, level=12, partitions=3, max_attempts=1)
    return list(read_rows(rows, name, 0, 0))


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    batches = [batch(1, b"a", b"b"), batch(2, bytes(1 << 20))]
    stored(tmp_path / "rows", *batches)
    assert list(rows_of(places_in(tmp_path), "rows")) == batches
    assert read(tmp_path, "rows") == batches


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    with contextlib.suppress(LookupError), RowFile(tmp_path / "rows", nothing) as file:
        file.write(batch(1, b"a"))
        raise LookupError
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(0, id="nothing"),
        pytest.param(-1, id="the last byte"),
        pytest.param(-200, id="the end"),
    ],
)
def test_a_part_of_a_file_is_none(tmp_path: Path, end: int) -> None:
    path = stored(tmp_path / "rows", batch(1, b"a"), batch(1, b"b"))
    path.write_bytes(path.read_bytes()[:end])
    with pytest.raises(ShardStorageError, match="rows"):
        list(rows_of(places_in(tmp_path), "rows"))


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    marks, report = read(tmp_path, "missing")
    assert schema.dests_of(marks).tolist() == [schema.CONTROL] * 3
    for value in marks.column(4).to_pylist():
        assert reports_pb2.AttemptMark.FromString(value).failed
    (value,) = report.column(4).to_pylist()
    told = reports_pb2.TaskReport.FromString(value)
    assert (told.level, told.failure.kind) == (12, "ShardStorageError")
    assert told.failure.step == str(tmp_path / "missing")


def test_a_disk_that_is_full_is_noticed_at_the_end() -> None:
    """Not before: whoever writes may be user code."""
    file = RowFile(FULL, nothing)
    for _ in range(3):
        file.write(batch(1, bytes(1 << 20)))
    with pytest.raises(ShardStorageError, match="No space left") as caught:
        file.finish()
    assert caught.value.place == str(FULL)


def test_a_row_file_in_a_missing_folder_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(ShardStorageError, match="away"):
        RowFile(tmp_path / "away" / "rows", nothing)
