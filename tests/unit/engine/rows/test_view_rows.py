"""Rows of side inputs in epochs: which part of a side input a value goes to."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from apache_beam.coders import BytesCoder, StrUtf8Coder, TupleCoder, VarIntCoder, WindowedValueCoder
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import FixedWindows, IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import routing, urns
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.view_rows import WHOLE, ViewRowWriter, parts_of
from beam_spark_runner.engine.rows.writing import Outlet
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.written_rows import edge_of

PARTITIONS = 4
PAIRS = WindowedValueCoder(TupleCoder([StrUtf8Coder(), VarIntCoder()]), IntervalWindowCoder())
WINDOWED = Windowing(FixedWindows(10)).to_runner_api(PipelineContext()).SerializeToString()


def edge(pattern: str, *, in_parts: bool) -> Edge:
    of = edge_of(Delivery.SIDE_INPUT, is_global=False, access_pattern=pattern, key_groups=128)
    return replace(of, is_in_parts=in_parts, coded_windowing=WINDOWED)


def rows(of: Edge, elements: list[WindowedValue], *, epoch: int = 3) -> list[tuple[bytes, int]]:
    """Write elements, and return the part and the partition of each."""
    batches: list[pa.RecordBatch] = []
    outlet = Outlet(
        emit=batches.append,
        row_limit_bytes=1 << 20,
        max_element_bytes=1 << 20,
        partitions=PARTITIONS,
        first=0,
        epoch=epoch,
    )
    writer = ViewRowWriter(of, PAIRS, outlet)
    for element in elements:
        writer.accept(element)
    writer.flush()
    table = pa.Table.from_batches(batches)
    values = WindowedValueCoder(
        TupleCoder([VarIntCoder(), PAIRS.wrapped_value_coder]), IntervalWindowCoder()
    )
    read = [values.decode(coded) for coded in table["value"].to_pylist()]
    assert [value.value for value in read] == [(epoch, each.value) for each in elements]
    keys = [BytesCoder().get_impl().decode_nested(key) for key in table["key"].to_pylist()]
    partitions = routing.partitions_of_routes(table["route"].to_numpy(), PARTITIONS)
    return list(zip(keys, partitions.tolist(), strict=True))


def element(key: str, number: int, start: int = 0) -> WindowedValue:
    return WindowedValue((key, number), Timestamp(start), (IntervalWindow(start, start + 10),))


@pytest.mark.parametrize("partitions", [1, 2, 3, 8, 128])
@pytest.mark.parametrize("key_groups", [128, 1000])
def test_each_partition_has_a_part(partitions: int, key_groups: int) -> None:
    parts = parts_of(key_groups, partitions)
    assert len(set(parts)) == partitions
    keys = [BytesCoder().get_impl().encode_nested(part) for part in parts]
    routes = routing.routes_in_key_groups(keys, len(keys), -127, key_groups, partitions)
    assert routing.partitions_of_routes(routes, partitions).tolist() == list(range(partitions))


def test_values_of_a_key_are_in_one_part_and_keys_in_several() -> None:
    elements = [element(f"key {n % 50}", n) for n in range(200)]
    found = rows(edge(urns.SIDE_INPUT_MULTIMAP, in_parts=True), elements)
    by_key: dict[str, set[Any]] = {}
    for each, place in zip(elements, found, strict=True):
        by_key.setdefault(each.value[0], set()).add(place)
    assert all(len(places) == 1 for places in by_key.values())
    assert {partition for _, partition in found} == set(range(PARTITIONS))


def test_few_values_of_a_window_are_in_one_part_and_many_in_all() -> None:
    of = edge(urns.SIDE_INPUT_ITERABLE, in_parts=True)
    few = [element("", n, start=start) for n in range(100) for start in range(0, 200, 10)]
    places = rows(of, few)
    for start in range(20):
        assert len(set(places[start::20])) == 1
    assert len(set(places)) == PARTITIONS
    assert len(set(rows(of, [element("", n) for n in range(5_000)]))) == PARTITIONS


@pytest.mark.parametrize("pattern", [urns.SIDE_INPUT_ITERABLE, urns.SIDE_INPUT_MULTIMAP])
def test_what_a_trigger_must_see_together_is_in_one_place(pattern: str) -> None:
    elements = [element(f"key {n}", n) for n in range(3_000)]
    ((key, _),) = set(rows(edge(pattern, in_parts=False), elements))
    assert key == WHOLE
