"""Rows that tasks in this process have emitted: partitions, marks, and order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core import routing
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import mark_to_keep
from beam_spark_runner.engine.rows.reports import without_reports
from beam_spark_runner.in_process.local_rows import (
    LocalRows,
    partitions_of,
    with_spread_marks,
)
from beam_spark_runner.scheduling.attempts import Attempts
from tests.unit.engine.task.exchanges import exchanged

DEST, OTHER = 5, 6


def rows(routes: Sequence[int], dest: int = DEST) -> pa.RecordBatch:
    """Return rows whose values say where they are in the order of emission."""
    values = [b"%d" % number for number in range(len(routes))]
    return schema.batch_of(dest, np.array(routes, np.int64), None, None, values)


def mark(attempt: int, run: int = 7) -> pa.RecordBatch:
    return mark_to_keep(reports_pb2.AttemptMark(attempt=attempt, run=run))


def program(partitions: int, *, is_grouped: bool) -> Any:
    """Return as much of a level's program as an exchange looks at."""
    from types import SimpleNamespace

    edge = SimpleNamespace(is_grouped=is_grouped, is_ordered=False)
    stage = SimpleNamespace(input=edge)
    return SimpleNamespace(partitions=partitions, stages=[stage], reads_marks_first=False)


ROUTES = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=40)


@given(st.lists(ROUTES, min_size=1, max_size=4), st.integers(1, 5), st.booleans())
def test_each_row_is_on_the_partition_of_its_route(
    routes: list[list[int]], partitions: int, is_grouped: bool
) -> None:
    made = [[rows(each)] for each in routes]
    found = exchanged(program(partitions, is_grouped=is_grouped), made)
    assert len(found) == partitions
    seen: list[tuple[int, bytes]] = []
    for number, partition in enumerate(found):
        here = [
            (route, value)
            for batch in partition
            for route, value in zip(
                batch.column("route").to_pylist(), batch.column("value").to_pylist(), strict=True
            )
        ]
        places = routing.partitions_of_routes(np.array([r for r, _ in here], np.int64), partitions)
        assert set(places.tolist()) <= {number}
        if is_grouped:
            assert [route for route, _ in here] == sorted(route for route, _ in here)
        seen += here
    emitted = [(route, b"%d" % place) for each in routes for place, route in enumerate(each)]
    assert sorted(seen) == sorted(emitted)


def test_rows_that_need_no_order_come_as_they_were_emitted() -> None:
    made = [[rows([9, 1, 5])], [rows([3])]]
    (found,) = exchanged(program(1, is_grouped=False), made)
    assert [r for batch in found for r in batch.column("route").to_pylist()] == [9, 1, 5, 3]


def test_marks_of_earlier_jobs_reach_every_partition() -> None:
    made = [[rows([1, 2, 3]), mark(1)], [mark(2)]]
    spread = [with_spread_marks(each, 3) for each in made]
    found = exchanged(program(3, is_grouped=True), spread)
    expected = {7: Attempts.of([1, 2])}
    assert [LocalRows([partition]).attempts() for partition in found] == [expected] * 3
    assert sum(len(batch) for each in found for batch in each) == 3 + 2 * 3


def test_rows_for_some_destinations_keep_their_marks_and_partitions() -> None:
    some = LocalRows([[rows([1, 2]), rows([3], OTHER), mark(1)], [rows([4], OTHER)]])
    found = some.united_with(LocalRows([[rows([5])]])).rows_for([DEST])
    assert [sum(map(len, each)) for each in partitions_of(found)] == [3, 0, 1]
    assert found.attempts() == {7: Attempts.of([1])}


def test_reports_are_taken_out_of_the_rows() -> None:
    report = schema.batch_of(schema.REPORT, np.zeros(1, np.int64), None, None, [b"report"])
    both = pa.Table.from_batches([rows([1]), report]).combine_chunks().to_batches()
    reports: list[bytes] = []
    left = [list(without_reports(each, reports)) for each in (both, [report])]
    assert reports == [b"report", b"report"]
    assert [[len(batch) for batch in each] for each in left] == [[1], []]


def test_rows_of_another_cluster_are_refused() -> None:
    foreign: Any = object()
    with pytest.raises(AssertionError):
        partitions_of(foreign)
