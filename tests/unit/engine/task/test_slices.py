"""Rows of a task in slices, after any of which the task can stop."""

from collections.abc import Iterable, Iterator

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


def always() -> float:
    return 1e9


class Clock:
    """Has some seconds left; each group takes one."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    def __call__(self) -> float:
        return self.left_s

    def routes_of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[list[int]]:
        """Yield the routes of each batch, and let its groups take their time."""
        for batch in batches:
            routes = batch.column("route").to_pylist()
            yield routes
            self.left_s -= len(set(routes) - {MARK, REPORT})


def test_slices_double_while_there_is_time() -> None:
    fed = [batch.column("route").to_pylist() for batch in Slices(table(*range(9)), always)]
    assert fed == [[MARK], [0], [1, 2], [3, 4, 5, 6], [7, 8], [REPORT]]


@pytest.mark.parametrize(
    ("seconds", "fed"),
    [
        pytest.param(0.0, [[0]], id="the first slice is always fed"),
        pytest.param(1.5, [[0], [1]], id="time for a part of a group"),
        pytest.param(3.0, [[0], [1, 2]], id="the time is over with a slice"),
        pytest.param(6.0, [[0], [1, 2], [3, 4, 5]], id="no time for four groups"),
        pytest.param(99.0, [[0], [1, 2], [3, 4, 5, 6], [7]], id="time for all"),
    ],
)
def test_no_slice_has_more_groups_than_fit_the_time(seconds: float, fed: list[list[int]]) -> None:
    clock = Clock(seconds)
    slices = Slices(table(*range(8)), clock)
    assert list(clock.routes_of(slices)) == [[MARK], *fed, [REPORT]]
    rest = list(range(sum(map(len, fed)), 8))
    assert slices.count_unread() == len(rest)
    assert routes_of(slices.stop_and_rest()) == rest


def test_no_row_is_fed_after_a_stop() -> None:
    slices = Slices(table(*range(5)), always)
    given = iter(slices)
    fed = [next(given), next(given)]
    rest = slices.stop_and_rest()
    assert routes_of([*fed, *given]) == [MARK, 0, REPORT]
    assert routes_of(rest) == [1, 2, 3, 4]


@given(st.lists(st.integers(0, 5), max_size=30), st.floats(0, 6))
def test_groups_are_whole_and_each_row_is_fed_or_left(routes: list[int], seconds: float) -> None:
    clock = Clock(seconds)
    slices = Slices(table(*routes), clock)
    fed = [route for each in clock.routes_of(slices) for route in each][1:-1]
    rest = routes_of(slices.stop_and_rest())
    assert fed + rest == sorted(routes)
    assert set(fed).isdisjoint(rest)
    assert slices.count_unread() == len(rest)
