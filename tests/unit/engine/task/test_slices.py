"""Rows of a task in slices, after any of which the task can stop."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core import routing
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task.slices import Slices

DEST = 3
MARK = routing.route_prefix(routing.CONTROL_CODE)
REPORT = routing.route_prefix(routing.REPORT_CODE)


def table(*routes: int) -> pa.Table:
    """Return a mark, rows with these routes, in order, and a report."""
    rows = [
        schema.batch_of(schema.CONTROL, np.array([MARK]), None, None, [b"mark"]),
        schema.batch_of(
            DEST, np.array(sorted(routes), np.int64), None, None, [b"row"] * len(routes)
        ),
        schema.batch_of(schema.REPORT, np.array([REPORT]), None, None, [b"report"]),
    ]
    return pa.Table.from_batches(rows)


def routes_of(batches: list[pa.RecordBatch]) -> list[int]:
    return [route for batch in batches for route in batch.column("route").to_pylist()]


class Late:
    """Is late after a number of questions."""

    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self) -> bool:
        self._left -= 1
        return self._left < 0


def test_slices_grow() -> None:
    fed = [batch.column("route").to_pylist() for batch in Slices(table(*range(9)), bool)]
    assert fed == [[MARK], [0], [1, 2], [3, 4, 5, 6], [7, 8], [REPORT]]


@pytest.mark.parametrize(
    ("after", "fed", "rest"),
    [
        (0, [MARK, 0, REPORT], [1, 2, 3, 4]),
        (1, [MARK, 0, 1, 2, REPORT], [3, 4]),
        (2, [MARK, 0, 1, 2, 3, 4, REPORT], []),
    ],
)
def test_the_first_slice_is_fed_and_those_after_the_time_are_not(
    after: int, fed: list[int], rest: list[int]
) -> None:
    slices = Slices(table(*range(5)), Late(after))
    assert routes_of(list(slices)) == fed
    assert slices.unread() == len(rest)
    assert routes_of(slices.rest()) == rest


def test_no_row_is_fed_after_a_stop() -> None:
    slices = Slices(table(*range(5)), bool)
    given = iter(slices)
    fed = [next(given), next(given)]
    rest = slices.rest()
    assert routes_of([*fed, *given]) == [MARK, 0, REPORT]
    assert routes_of(rest) == [1, 2, 3, 4]


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 6))
def test_groups_are_whole_and_each_row_is_fed_or_left(routes: list[int], after: int) -> None:
    slices = Slices(table(*routes), Late(after))
    fed = routes_of(list(slices))[1:-1]
    rest = routes_of(slices.rest())
    assert fed + rest == sorted(routes)
    assert set(fed).isdisjoint(rest)
    assert slices.unread() == len(rest)
