"""Records that are left in flight, over records in memory."""

import random

from beam_spark_runner.harness.bundle import RecordLeft
from beam_spark_runner.harness.stored_in_flight import (
    copy_left,
    has_left,
    store_left,
    take_left,
)
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.store_keys import hash_of
from tests.unit.state.sorted_records import SortedRecords, count_values


def store_of(records: SortedRecords) -> StoredState:
    return StoredState(records, 1, count_values, page_bytes=64)


def test_records_come_back_in_their_order_once() -> None:
    records = SortedRecords()
    store = store_of(records)
    assert not has_left(store)
    assert take_left(store) == ()
    left = [RecordLeft(b"key %d" % (number % 3), number, b"x" * number) for number in range(200)]
    store_left(store, left)
    assert has_left(store)
    assert store.least_hold() == 0
    assert take_left(store) == [each.coded for each in left]
    assert store.is_empty()
    assert store.least_hold() is None


def test_many_bytes_are_in_several_pieces() -> None:
    store = store_of(SortedRecords())
    left = [RecordLeft(b"key", 7, bytes([number]) * 300_000) for number in range(20)]
    store_left(store, left)
    assert take_left(store) == [each.coded for each in left]


def test_nothing_left_stores_nothing() -> None:
    store = store_of(SortedRecords())
    store_left(store, ())
    assert store.is_empty()


def test_each_record_goes_to_the_shard_of_its_key() -> None:
    draw = random.Random(1)
    keys = [b"key %d" % number for number in range(30)]
    old = [store_of(SortedRecords()) for _ in range(3)]
    left: dict[bytes, list[bytes]] = {key: [] for key in keys}
    for place, store in enumerate(old):
        records = []
        for number in range(50):
            key = draw.choice(keys[place::3])
            coded = b"%d %d" % (place, number)
            left[key].append(coded)
            records.append(RecordLeft(key, 10 * place + number, coded))
        store_left(store, records)
    new = [store_of(SortedRecords()) for _ in range(2)]
    for number, target in enumerate(new):
        for source in old:
            copy_left(source, target, lambda hashed: hashed % 2 == number)  # noqa: B023
        assert target.least_hold() is not None
    found = [take_left(target) for target in new]
    for key, its in left.items():
        mine = found[hash_of(key) % 2]
        assert [each for each in mine if each in its] == its
    assert sum(map(len, found)) == 150
