"""Rows for side inputs that come back with the report of a task."""

import numpy as np
import pyarrow as pa

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task.returned_rows import ReturnedRows


def rows(dest: int, *values: bytes) -> pa.RecordBatch:
    return schema.batch_of(dest, np.zeros(len(values), np.int64), None, None, list(values))


def joined(*batches: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches(batches)


def values_of(returned: ReturnedRows) -> list[bytes]:
    coded = returned.coded()
    assert coded is not None
    return [
        value for batch in schema.decoded_batches(coded) for value in batch.column(4).to_pylist()
    ]


def test_only_rows_of_wanted_destinations_return() -> None:
    returned = ReturnedRows([3, 5], 10_000)
    returned.add_from(rows(3, b"a", b"b"))
    returned.add_from(rows(4, b"no"))
    returned.add_from(joined(rows(4, b"no"), rows(5 | schema.PIECE, b"c"), rows(3, b"d")))
    assert values_of(returned) == [b"a", b"b", b"c", b"d"]


def test_no_rows_are_few() -> None:
    returned = ReturnedRows([3], 0)
    returned.add_from(rows(4, b"a"))
    assert values_of(returned) == []


def test_beyond_the_limit_no_rows_return() -> None:
    returned = ReturnedRows([3, 5], 1_000)
    returned.add_from(rows(3, b"a"))
    assert values_of(returned) == [b"a"]
    returned.add_from(rows(5, b"x" * 1_000))
    assert returned.coded() is None
    returned.add_from(rows(3, b"b"))
    assert returned.coded() is None


def test_without_wanted_destinations_there_is_no_answer() -> None:
    returned = ReturnedRows([], 1_000)
    returned.add_from(rows(3, b"a"))
    assert returned.coded() is None
