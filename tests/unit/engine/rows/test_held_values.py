"""Values that writers hold until there are several of the same key."""

import random

import pyarrow as pa
import pytest
from apache_beam.coders import WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.engine.rows import key_writer, keyed_writer, schema, writing
from beam_spark_runner.engine.rows.held_values import MAX_HELD_BYTES, HeldValues, Room
from beam_spark_runner.plan.model import Delivery
from tests.unit.engine.rows.written_rows import (
    GLOBAL,
    KEY_ENDS,
    PAIRS,
    as_spark_would,
    edge_of,
    read,
    written,
)

_KEYED = edge_of(Delivery.BY_KEY, is_keyed=True)
_CODER = WindowedValueCoder(PAIRS, GlobalWindowCoder())


def _keys(first: int, count: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def test_values_are_held_when_half_of_the_keys_come_again() -> None:
    held = HeldValues(Room())
    taken = [held.take(keys, keys) for keys in (_keys(first, 1000) for first in (0, 1000, 0))]
    assert taken == [False, False, True]
    ((by_key, longest),) = held.drain(1 << 20)
    assert by_key == {key: [key] for key in _keys(0, 1000)}
    assert longest == 3
    assert not held


def test_values_are_not_held_if_keys_come_again_too_late() -> None:
    held = HeldValues(Room(400_000))
    taken = [held.take(_keys(first, 1000), [b"v"] * 1000) for first in (0, 1000, 0, 0, 0)]
    assert taken == [False] * 5


def test_values_are_not_held_if_keys_never_come_again() -> None:
    held = HeldValues(Room())
    batches = MAX_HELD_BYTES // (300 * 1000)
    assert not any(held.take(_keys(n * 1000, 1000), [b"v"] * 1000) for n in range(batches))
    assert not held.take(_keys(0, 1000), [b"v"] * 1000)  # and it looks no more


def test_writers_share_the_room() -> None:
    room = Room(1_000_000)
    one, other = HeldValues(room), HeldValues(room)
    for held in (one, other):
        for _ in range(2):
            held.take(_keys(0, 1000), [b"v"] * 1000)
    assert [held.is_full for held in (one, other)] == [False, False]
    while not one.is_full:
        assert one.take(_keys(0, 1000), [b"v"] * 1000)
    assert [held.is_full for held in (one, other)] == [True, True]
    assert sum(len(some) for some, _ in one.drain(1000)) == 1000
    assert [held.is_full for held in (one, other)] == [False, False]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers of about a hundred rows."""
    for module in (key_writer, keyed_writer, writing):
        monkeypatch.setattr(module, "FLUSH_BYTES", 10_000)


def _flags(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    return [(batch.column(0)[0].as_py() & ~schema.DEST_MASK, batch.num_rows) for batch in batches]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("late", [None, 1500, 4990], ids=["none", "in between", "at the end"])
def test_each_key_has_all_its_values(late: int | None) -> None:
    pairs = [(b"%d" % (n % 300), b"%d" % n) for n in range(5000)]
    elements = [
        WindowedValue(pair, Timestamp(5) if n == late else MIN_TIMESTAMP, (GLOBAL,))
        for n, pair in enumerate(pairs)
    ]
    batches = written(_KEYED, _CODER, elements, limit=1 << 20)
    rows = sum(batch.num_rows for batch in batches)
    assert rows < 1500
    assert any(flag == schema.PACKED for flag, _ in _flags(batches))
    found: list[WindowedValue] = []
    read(_KEYED, _CODER, as_spark_would(_KEYED, batches, random.Random(1)), found.append)
    assert sorted(each.value for each in found if each is not KEY_ENDS) == sorted(pairs)
    assert sum(each is KEY_ENDS for each in found) == 300


@pytest.mark.usefixtures("small")
def test_rows_of_keys_that_do_not_come_again_are_written_one_by_one() -> None:
    elements = [WindowedValue((b"%d" % n, b"v"), MIN_TIMESTAMP, (GLOBAL,)) for n in range(2000)]
    batches = written(_KEYED, _CODER, elements, limit=1 << 20)
    assert {flag for flag, _ in _flags(batches)} == {0}
    assert sum(count for _, count in _flags(batches)) == 2000


@pytest.mark.usefixtures("small")
def test_what_is_held_is_written_when_the_room_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room.__init__, "__defaults__", (200_000,))
    elements = [
        WindowedValue((b"%d" % (n % 300), b"v"), MIN_TIMESTAMP, (GLOBAL,)) for n in range(20_000)
    ]
    batches = written(_KEYED, _CODER, elements, limit=1 << 20)
    packed = [count for flag, count in _flags(batches) if flag == schema.PACKED]
    assert len(packed) > 4
    assert sum(packed) < 4000
