"""Elements and restrictions are spread evenly over partitions."""

import random
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import (
    BytesCoder,
    FloatCoder,
    StrUtf8Coder,
    TupleCoder,
    VarIntCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import (
    WindowedValue,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.core import routing
from beam_spark_runner.plan.model import Delivery
from tests.examples import examples
from tests.unit.engine.rows.written_rows import (
    GLOBAL,
    as_spark_would,
    edge_of,
    element_strategy,
    read,
    shown,
    written,
)


@pytest.mark.parametrize("delivery", [Delivery.REDISTRIBUTE, Delivery.POINTWISE])
@pytest.mark.parametrize("is_global", [True, False], ids=["global", "windows"])
@given(elements=st.lists(element_strategy(), max_size=30), chance=st.randoms(use_true_random=False))
def test_elements_keep_all_they_have(
    delivery: Delivery, is_global: bool, elements: list[WindowedValue], chance: random.Random
) -> None:
    if is_global:
        elements = [
            WindowedValue(each.value, each.timestamp, (GLOBAL,), each.pane_info)
            for each in elements
        ]
    edge = edge_of(delivery, is_global=is_global)
    coder = WindowedValueCoder(
        BytesCoder(), GlobalWindowCoder() if is_global else IntervalWindowCoder()
    )
    found: list[WindowedValue] = []
    batches = as_spark_would(edge, written(edge, coder, elements), chance)
    read(edge, coder, batches, found.append)
    assert shown(found) == shown(elements)


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize(("count", "loads"), [(1, [0, 0, 0, 1]), (6, [1, 1, 2, 2]), (8, [2] * 4)])
def test_elements_are_spread_evenly(first: int, count: int, loads: list[int]) -> None:
    edge = edge_of(Delivery.REDISTRIBUTE)
    coder = WindowedValueCoder(VarIntCoder(), GlobalWindowCoder())
    elements = [WindowedValue(n, MIN_TIMESTAMP, (GLOBAL,)) for n in range(count)]
    places = partitions_of(written(edge, coder, elements, first=first), 4)
    assert sorted(np.bincount(places, minlength=4)) == loads
    assert places[0] == first


def partitions_of(batches: list[pa.RecordBatch], partitions: int) -> list[int]:
    routes = pa.Table.from_batches(batches)["route"].to_numpy()
    return [int(place) for place in routing.partitions_of_routes(routes, partitions)]


def test_restrictions_are_spread_by_size() -> None:
    edge = edge_of(Delivery.REDISTRIBUTE_BY_SIZE)
    coder = WindowedValueCoder(TupleCoder([StrUtf8Coder(), FloatCoder()]), GlobalWindowCoder())
    sizes = [90.0, 10.0, 20.0, 30.0, 0.0, 30.0, 50.0, 40.0, 90.0]
    elements = [
        WindowedValue((str(n), size), MIN_TIMESTAMP, (GLOBAL,)) for n, size in enumerate(sizes)
    ]
    batches = written(edge, coder, elements)
    places = partitions_of(batches, 4)
    loads = np.bincount(places, weights=sizes, minlength=4)
    assert sum(loads) == sum(sizes)
    assert max(loads) == min(loads) == 90
    found: list[WindowedValue] = []
    read(edge, coder, iter(batches), found.append)
    assert [each.value for each in found] == [each.value for each in elements]


def restrictions(sizes: Iterable[float]) -> list[WindowedValue]:
    return [WindowedValue((str(n), size), MIN_TIMESTAMP, (GLOBAL,)) for n, size in enumerate(sizes)]


SIZED = WindowedValueCoder(TupleCoder([StrUtf8Coder(), FloatCoder()]), GlobalWindowCoder())


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("count", [1, 3, 4])
def test_few_restrictions_are_on_different_partitions(first: int, count: int) -> None:
    edge = edge_of(Delivery.REDISTRIBUTE_BY_SIZE)
    batches = written(edge, SIZED, restrictions([0.0, 5e9, 5.0, 1.0][:count]), first=first)
    assert len(set(partitions_of(batches, 4))) == count


@pytest.mark.parametrize("partitions", [4, 7, 40, 1, 3])
def test_elements_are_spread_evenly_over_other_partitions_than_their_task_knows_of(
    partitions: int,
) -> None:
    """A later segment may derive more partitions from bytes than that which wrote the rows."""
    edge = edge_of(Delivery.REDISTRIBUTE)
    coder = WindowedValueCoder(VarIntCoder(), GlobalWindowCoder())
    elements = [WindowedValue(n, MIN_TIMESTAMP, (GLOBAL,)) for n in range(1_000)]
    loads = np.zeros(partitions, np.int64)
    for task in range(4):
        places = partitions_of(written(edge, coder, elements, first=task), partitions)
        of_task = np.bincount(places, minlength=partitions)
        assert max(of_task) - min(of_task) <= 1
        loads += of_task
    assert max(loads) - min(loads) <= 4


@pytest.mark.parametrize("partitions", [4, 7, 40])
@given(
    sizes=st.lists(st.floats(1.0, 1e6), min_size=400, max_size=800),
    is_skewed=st.booleans(),
    first=st.integers(0, 100),
)
@settings(max_examples=examples(20), deadline=None)
def test_restrictions_are_spread_by_size_over_other_partitions_than_their_task_knows_of(
    partitions: int, sizes: list[float], is_skewed: bool, first: int
) -> None:
    if is_skewed:
        sizes = [size if n % 4 else 1.0 for n, size in enumerate(sizes)]
    edge = edge_of(Delivery.REDISTRIBUTE_BY_SIZE)
    batches = written(edge, SIZED, restrictions(sizes), first=first)
    loads = np.bincount(partitions_of(batches, partitions), weights=sizes, minlength=partitions)
    assert max(loads) <= sum(sizes) / partitions + 2 * max(sizes)
    assert max(loads) <= 2 * sum(sizes) / partitions + max(sizes)
