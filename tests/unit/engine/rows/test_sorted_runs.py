"""Sorted runs are merged as if all of their rows had been sorted at once."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.sorted_runs import in_blocks, merge_runs, places_in_order

Pairs = Sequence[tuple[int, int]]

FEW = st.integers(0, 3)  # so that many are equal
ANY = st.integers(-(1 << 63), (1 << 63) - 1)
PAIRS = st.lists(st.tuples(FEW | ANY, FEW | ANY), max_size=30)


def rows_of(pairs: Pairs, first: int) -> pa.RecordBatch:
    """Return rows with these routes and orders; their values say where they come from."""
    routes, orders = (np.array([pair[i] for pair in pairs], np.int64) for i in (0, 1))
    values = [b"%d" % (first + place) for place in range(len(pairs))]
    return schema.batch_of(5, routes, orders, None, values)


def contents(batches: Sequence[pa.RecordBatch]) -> list[tuple[int, int, int]]:
    return [
        (row["route"], row["order"], int(row["value"]))
        for batch in batches
        for row in batch.to_pylist()
    ]


@given(st.lists(PAIRS, max_size=6), st.integers(1, 300), st.booleans())
def test_the_merge_is_a_stable_sort(
    runs: list[list[tuple[int, int]]], block_bytes: int, is_ordered: bool
) -> None:
    batches = [rows_of(pairs, 100 * number) for number, pairs in enumerate(runs)]
    blocks = [
        list(in_blocks(batch, places_in_order(batch, is_ordered=is_ordered), block_bytes))
        for batch in batches
    ]
    found = contents(list(merge_runs(blocks, is_ordered=is_ordered)))
    key = slice(0, 2 if is_ordered else 1)
    assert found == sorted(contents(batches), key=lambda row: row[key])


@pytest.mark.parametrize("is_hot", [False, True], ids=["many routes", "one route"])
def test_few_blocks_of_each_run_are_in_memory(is_hot: bool) -> None:
    taken = 0

    def run(number: int) -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for block in range(100):
            routes = [(7 if is_hot else 50 * block + place, 0) for place in range(50)]
            taken += 50
            yield rows_of(routes, 0)

    most = given_out = 0
    for batch in merge_runs([run(number) for number in range(8)], is_ordered=False):
        most = max(most, taken - given_out)
        given_out += len(batch)
    assert given_out == 8 * 100 * 50
    assert most <= 8 * 2 * 50


def test_many_rows_are_merged_at_once() -> None:
    random = np.random.default_rng(1)

    def run() -> list[pa.RecordBatch]:
        routes = [(int(each), 0) for each in random.integers(0, 1 << 40, 2_000)]
        batch = rows_of(routes, 0)
        size = batch.nbytes // 100
        return list(in_blocks(batch, places_in_order(batch, is_ordered=False), size))

    runs = [run() for _ in range(20)]
    merges = sum(1 for _ in merge_runs(runs, is_ordered=False))
    assert merges < sum(map(len, runs)) / 4
