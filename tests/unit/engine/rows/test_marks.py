"""Marks among the rows of a task: which attempts have made them."""

import numpy as np
import pyarrow as pa

from beam_spark_runner._generated.reports_pb2 import AttemptMark
from beam_spark_runner.core import routing
from beam_spark_runner.engine.rows import marks, schema
from beam_spark_runner.scheduling.attempts import IN_THIS_JOB, Attempts

ELEMENTS = schema.batch_of(
    7 | schema.WINDOWED, np.array([3, 4], np.int64), None, None, [b"a", b"b"]
)


def mixed(*some: AttemptMark) -> pa.RecordBatch:
    """Marks, with one element before them and one after."""
    kept = [marks.mark_to_keep(mark) for mark in some]
    table = pa.Table.from_batches([ELEMENTS[:1], *kept, ELEMENTS[1:]])
    (batch,) = table.combine_chunks().to_batches()
    return batch


def test_a_batch_without_marks_stays_what_it_is() -> None:
    reader = marks.MarkReader()
    assert reader.without_marks(ELEMENTS) is ELEMENTS
    assert reader.consumed() == {}
    assert not reader.failed
    assert not reader.left_residuals


def test_marks_are_taken_out_and_counted_by_run() -> None:
    reader = marks.MarkReader()
    taken = reader.without_marks(mixed(AttemptMark(attempt=5), AttemptMark(attempt=6, run=2)))
    assert taken.to_pylist() == ELEMENTS.to_pylist()
    reader.without_marks(mixed(AttemptMark(attempt=8)))
    found = marks.consumed_of(reader.consumed())
    assert found == {IN_THIS_JOB: Attempts(2, 13), 2: Attempts(1, 6)}
    assert not reader.failed
    assert not reader.left_residuals


def test_what_one_mark_says_of_its_task_holds_for_all_that_is_read() -> None:
    failed, left = marks.MarkReader(), marks.MarkReader()
    for mark in (AttemptMark(failed=True), AttemptMark()):
        failed.without_marks(mixed(mark))
    for mark in (AttemptMark(left_residuals=True), AttemptMark()):
        left.without_marks(mixed(mark))
    assert (failed.failed, failed.left_residuals) == (True, False)
    assert (left.failed, left.left_residuals) == (False, True)


def test_a_watermark_is_the_least_of_those_of_all_tasks() -> None:
    reader = marks.MarkReader()
    for watermarks_us in ({1: 5, 2: -7}, {1: 4}, {}, {1: 9, 3: 0}):
        reader.without_marks(mixed(AttemptMark(watermarks_us=watermarks_us)))
    assert reader.watermarks_us == {1: 4, 2: -7, 3: 0}


def test_each_partition_gets_a_mark_before_all_elements() -> None:
    mark = AttemptMark(attempt=5)
    batch = marks.marks_for(4, mark)
    routes = batch.column(1).to_numpy()
    assert routing.partitions_of_routes(routes, 4).tolist() == [0, 1, 2, 3]
    assert (routes >> routing.HASH_BITS == routing.CONTROL_CODE).all()
    assert schema.dests_of(batch).tolist() == [schema.CONTROL] * 4
    assert batch.column(4).to_pylist() == [mark.SerializeToString()] * 4


def test_a_mark_that_is_kept_has_the_least_of_the_routes_of_marks() -> None:
    kept = marks.mark_to_keep(AttemptMark(attempt=5))
    assert kept.num_rows == 1
    (route,) = kept.column(1).to_pylist()
    assert route == routing.route_prefix(routing.CONTROL_CODE)
