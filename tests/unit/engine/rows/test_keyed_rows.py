"""Keyed elements, written as rows and read key by key."""

import random
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
from apache_beam.coders import (
    BytesCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import (
    WindowedValue,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_spark_runner.core.routing import partitions_of_routes
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.state.store_keys import StoreKeys
from tests.examples import examples
from tests.unit.engine.rows.written_rows import (
    GLOBAL,
    KEY_ENDS,
    KEYS,
    PAIRS,
    as_spark_would,
    edge_of,
    element_strategy,
    pair_coders,
    read,
    shown,
    sorted_groups,
    written,
)


def keys_of(found: Iterable[WindowedValue]) -> Iterator[list[WindowedValue]]:
    """Elements between the ends of two keys."""
    one: list[WindowedValue] = []
    for each in found:
        if each.value == KEY_ENDS.value:
            yield one
            one = []
        else:
            one.append(each)
    assert not one, "a key that does not end"


@pytest.mark.usefixtures("hashes", "memory")
@pytest.mark.parametrize("is_time_sorted", [True, False], ids=["sorted", "in any order"])
@pytest.mark.parametrize("is_global", [True, False], ids=["global", "windows"])
@pytest.mark.parametrize("key_groups", [0, 128], ids=["in batch", "in epochs"])
@given(
    elements=st.lists(st.tuples(KEYS, element_strategy()), max_size=30),
    chance=st.randoms(use_true_random=False),
)
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keyed_elements_come_key_by_key(
    is_time_sorted: bool,
    is_global: bool,
    key_groups: int,
    elements: list[tuple[bytes, WindowedValue]],
    chance: random.Random,
) -> None:
    pairs = [
        WindowedValue(
            (key, each.value),
            each.timestamp,
            (GLOBAL,) if is_global else each.windows,
            each.pane_info,
        )
        for key, each in elements
    ]
    edge = edge_of(
        Delivery.BY_KEY,
        is_global=is_global,
        is_keyed=True,
        is_time_sorted=is_time_sorted,
        key_groups=key_groups,
    )
    coder = WindowedValueCoder(PAIRS, GlobalWindowCoder() if is_global else IntervalWindowCoder())
    found: list[WindowedValue] = []
    batches = as_spark_would(edge, written(edge, coder, pairs), chance)
    read(edge, coder, batches, found.append)
    keys = list(keys_of(found))
    assert sorted(each[0].value[0] for each in keys) == sorted({key for key, _ in elements})
    for some in keys:
        assert len({each.value[0] for each in some}) == 1
        if is_time_sorted:
            times = [each.timestamp for each in some]
            assert times == sorted(times)
    assert shown(each for some in keys for each in some) == shown(pairs)


@pytest.mark.usefixtures("hashes", "memory")
def test_groups_for_a_keyed_step_end_one_by_one() -> None:
    edge = edge_of(Delivery.GROUP_BY_KEY, is_keyed=True)
    coder, group_coder = pair_coders(GlobalWindowCoder())
    pairs = [(bytes([65 + n % 5]), str(n).encode() * 30) for n in range(40)]
    batches = written(edge, coder, [WindowedValue(p, Timestamp(5), (GLOBAL,)) for p in pairs])
    found: list[WindowedValue] = []

    def push(group: WindowedValue) -> None:
        if group.value != KEY_ENDS.value:
            key, values = group.value
            group = group.with_value((key, sorted(values)))
        found.append(group)

    read(edge, group_coder, as_spark_would(edge, batches, random.Random(3)), push)
    keys = [[group.value for group in some] for some in keys_of(found)]
    assert sorted(keys) == [[group] for group in sorted_groups(pairs)]


@pytest.mark.parametrize("delivery", [Delivery.BY_KEY, Delivery.GROUP_BY_KEY])
def test_in_epochs_rows_and_the_store_agree_on_the_hash_of_a_key(delivery: Delivery) -> None:
    """So that the key groups of a partition are a range of what it has stored."""
    partitions = 5
    edge = edge_of(delivery, is_keyed=True, key_groups=128)
    coder = WindowedValueCoder(PAIRS, GlobalWindowCoder())
    for key in (b"", b"a", b"key", b"k" * 200, b"k" * 100_000):
        element = WindowedValue((key, b"value"), Timestamp(1), (GLOBAL,))
        (batch,) = written(edge, coder, [element], limit=1 << 20, partitions=partitions)
        (route,) = batch.column("route").to_pylist()
        stored = StoreKeys(1).of_key(BytesCoder().get_impl().encode_nested(key))
        hashed = int.from_bytes(stored[3:10], "big")
        assert (route >> 32) & 0xFFFFFF == hashed >> 32
        owner = partitions_of_routes(np.array([route]), partitions)
        assert owner.tolist() == [(hashed >> 24) * 128 // (1 << 32) * partitions // 128]
