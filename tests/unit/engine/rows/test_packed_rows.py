"""Rows that carry several values of one key."""

from typing import Any

import numpy as np
import pytest
from apache_beam.coders import WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.packed_rows import (
    are_short,
    have_several_values,
    packed,
    unpacked,
)
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.written_rows import GLOBAL, PAIRS, edge_of, written

_KEYS = st.sampled_from([b"", b"a", b"b", b"long key"])
_ROWS = st.lists(st.tuples(_KEYS, st.binary(max_size=300)), min_size=1, max_size=200)


def _blocks(keys: list[bytes], values: list[bytes]) -> list[schema.RowBatch]:
    """Pack rows, and return what a reader makes of them."""
    blocks: list[schema.RowBatch] = []
    for flag, some_keys, some_values in packed(keys, values):
        count = len(some_keys)
        order = np.full(count, schema.BARE)
        routes = np.arange(count, dtype=np.int64)
        batch = schema.batch_of(7 | flag, routes, order, some_keys, some_values)
        blocks += unpacked(schema.block_of(batch))
    return blocks


@given(_ROWS)
def test_each_key_has_the_same_values_in_the_same_order(rows: list[tuple[bytes, bytes]]) -> None:
    found: dict[bytes | None, list[bytes]] = {}
    keys, values = ([row[part] for row in rows] for part in (0, 1))
    for block in _blocks(keys, values):
        assert (block.dests == 7).all()
        assert (block.orders == schema.BARE).all()
        assert len(block.dests) == len(block.routes) == len(block.orders) == len(block.keys)
        for key, value in zip(block.keys, block.values, strict=True):
            found.setdefault(key, []).append(value)
    assert found == {key: [value for its_key, value in rows if its_key == key] for key in {*keys}}


def test_the_rows_of_one_key_are_few_and_short() -> None:
    values = [b"%d" % n for n in range(5000)]
    rows = [*packed([b"a"] * 5000, values)]
    assert sum(len(keys) for _, keys, _ in rows) < 10
    assert all(len(value) <= 1 << 13 for _, _, packs in rows for value in packs)
    assert [value for block in _blocks([b"a"] * 5000, values) for value in block.values] == values


def test_a_block_of_many_values_is_read_in_parts() -> None:
    keys = [b"%d" % (n % 100) for n in range(100_000)]
    blocks = _blocks(keys, [b"v"] * 100_000)
    assert max(map(len, blocks)) <= 10_000
    assert sum(map(len, blocks)) == 100_000


def test_rows_are_packed_if_keys_have_several_values_that_are_short() -> None:
    assert have_several_values([b"a", b"a"])
    assert not have_several_values([b"a", b"b"])
    assert are_short([b"a", b"a"], [b"1", b"2"])
    assert not are_short([b"a", b"a"], [b"1" * 3000, b"2"])
    assert not are_short([b"a" * 10_000] * 2, [b"1", b"2"])


@pytest.mark.parametrize(
    ("delivery", "timestamp", "options", "are_packed"),
    [
        pytest.param(Delivery.GROUP_BY_KEY, Timestamp(5), {}, True, id="groups"),
        pytest.param(Delivery.BY_KEY, MIN_TIMESTAMP, {}, True, id="keyed"),
        pytest.param(Delivery.GROUP_BY_KEY, Timestamp(5), {"key_groups": 8}, False, id="epochs"),
        pytest.param(Delivery.BY_KEY, MIN_TIMESTAMP, {"key_groups": 8}, False, id="keyed, epochs"),
        pytest.param(Delivery.BY_KEY, Timestamp(5), {}, False, id="keyed, timestamps"),
        pytest.param(
            Delivery.GROUP_BY_KEY,
            Timestamp(5),
            {"combiner": TimestampCombiner.EARLIEST},
            False,
            id="groups, sorted",
        ),
    ],
)
def test_which_writers_pack(
    delivery: Delivery, timestamp: Timestamp, options: dict[str, Any], *, are_packed: bool
) -> None:
    edge = edge_of(delivery, is_keyed=delivery is Delivery.BY_KEY, **options)
    pairs = [(b"%d" % (n % 3), b"value") for n in range(100)]
    elements = [WindowedValue(pair, timestamp, (GLOBAL,)) for pair in pairs]
    coder = WindowedValueCoder(PAIRS, GlobalWindowCoder())
    batches = written(edge, coder, elements, limit=1 << 20)
    flags = {flag for batch in batches for flag in schema.block_of(batch).dests.tolist()}
    assert flags == {edge.dest | (schema.PACKED if are_packed else 0)}
    assert sum(batch.num_rows for batch in batches) == (3 if are_packed else 100)
