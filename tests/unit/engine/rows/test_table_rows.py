"""Rows of tables as tasks write them."""

import numpy as np
import pyarrow as pa
import pytest

from beam_spark_runner._generated.reports_pb2 import AttemptMark
from beam_spark_runner.engine.rows import marks, schema
from beam_spark_runner.engine.rows.table_rows import OtherAttemptError, writing_function

DEST = 7
WANTED = pa.schema([("id", pa.int32())])


def rows(dest: int, *ids: int) -> pa.RecordBatch:
    batch = pa.record_batch({"id": pa.array(ids, pa.int64())})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return schema.batch_of(
        dest, np.array([len(ids)], np.int64), None, None, [sink.getvalue().to_pybytes()]
    )


def mark(attempt: int) -> pa.RecordBatch:
    return marks.mark_to_keep(AttemptMark(attempt=attempt, run=3))


def written(*batches: pa.RecordBatch, accepted: set[int]) -> list[int]:
    made = writing_function(DEST, WANTED, frozenset(accepted))(iter(batches))
    return [row["id"] for batch in made for row in batch.to_pylist()]


def test_rows_of_the_table_alone_are_written() -> None:
    found = written(rows(DEST, 1, 2), rows(8, 9), mark(5), rows(DEST, 3), accepted={4, 5})
    assert found == [1, 2, 3]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_marks_of_other_attempts_are_an_error(position: int) -> None:
    batches = [rows(DEST, 1), mark(5)]
    batches.insert(position, mark(6))
    with pytest.raises(OtherAttemptError, match=r"run 3: rows of attempts \[6\]") as raised:
        written(*batches, accepted={5})
    assert not OtherAttemptError.is_in(raised.value)
    assert OtherAttemptError.is_in(RuntimeError(f"x.OtherAttemptError: {raised.value}"))


def test_a_value_that_does_not_fit_names_its_column() -> None:
    with pytest.raises(ValueError, match="column id: a value does not fit into int32"):
        written(rows(DEST, 1 << 40), accepted=set())
