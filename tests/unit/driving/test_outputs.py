"""Which outputs of segments the driver has."""

import numpy as np
import pyarrow as pa
import pytest

from beam_spark_runner.core.ids import DestinationId, SegmentId
from beam_spark_runner.driving import outputs
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.outputs import Outputs
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.in_process.local_rows import LocalRows
from beam_spark_runner.scheduling.segment_output import SegmentOutput

FIRST, SECOND = SegmentId(1), SegmentId(2)
HERE, THERE = DestinationId(5), DestinationId(6)


def rows(dest: DestinationId, *values: bytes) -> pa.RecordBatch:
    return schema.batch_of(dest, np.zeros(len(values), np.int64), None, None, values)


def added(found: Outputs, writer: SegmentId, *batches: pa.RecordBatch, returns_all: bool) -> None:
    output = SegmentOutput(parts=(), size_bytes=0)
    found.add(
        writer, output, OutputRows(LocalRows([batches]), {}, batches, returns_all=returns_all)
    )


def test_rows_of_several_writers_are_returned_if_the_driver_has_all_of_them() -> None:
    found = Outputs()
    added(found, FIRST, rows(HERE, b"1", b"2"), rows(THERE, b"3"), returns_all=True)
    added(found, SECOND, rows(HERE, b"4"), returns_all=True)
    returned = found.returned_for({HERE: [FIRST, SECOND]})
    assert returned is not None
    assert [value for batch in returned for value in batch["value"].to_pylist()] == [
        b"1",
        b"2",
        b"4",
    ]
    added(found, SECOND, rows(HERE, b"4"), returns_all=False)
    assert found.returned_for({HERE: [FIRST, SECOND]}) is None


def test_no_first_task_begins_while_the_driver_has_many_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outputs, "MAX_DRIVER_BYTES", 1_000)
    found = Outputs()
    assert found.has_room_in_driver()
    added(found, FIRST, rows(HERE, bytes(600)), returns_all=True)
    assert found.has_room_in_driver()
    added(found, SECOND, rows(HERE, bytes(600)), returns_all=True)
    assert not found.has_room_in_driver()
    found.forget(SECOND)
    assert found.has_room_in_driver()
