"""State of keys that moves from some shards to others, over records in memory."""

from typing import NamedTuple

import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.key_groups import hashes_of, overlapping
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, ListRange, MapEntries, MapValues, StoredTimer
from beam_spark_runner.state.resharding import copy_keys
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.store_keys import hash_of
from tests.unit.state.sorted_records import SortedRecords, count_values, list_entry, read

GROUPS, STAGE = 16, 3
KEYS = [f"key {number}".encode() * (40 if number % 3 else 1) for number in range(60)]
NOBODYS = Bag(Cell("apart", "elements", b"", b""))


class Share(NamedTuple):
    """What goes from an old partition to a new one."""

    source: range
    mine: range
    new: int
    targets: range

    def has_id(self, hashed: int) -> bool:
        return self.targets[hashed % len(self.targets)] == self.new


def state(records: SortedRecords, stage: int = STAGE) -> StoredState:
    return StoredState(records, stage, count_values, page_bytes=50)


def timers(number: int) -> list[StoredTimer]:
    """Return timers of both domains, of one, or none."""
    event = StoredTimer("f", "", b"w", Domain.EVENT_TIME, number, number % 7, b"")
    clock = StoredTimer("f", "tag", b"w", Domain.PROCESSING_TIME, 100 - number, MAX_US, b"p")
    return [event, clock, event._replace(tag="other")][: number % 4]


def fill(store: StoredState, number: int, transform: str) -> None:
    """Store something of each kind for a key."""
    key = KEYS[number]
    store.append(Bag(Cell(transform, "bag", b"w", key)), b"x" * 300)
    store.append(Bag(Cell(transform, "bag", b"w", key)), b"y" * number)
    store.append(MapValues(Cell(transform, "map", b"w", key), b"k"), b"v" * 70)
    store.append(ListRange(Cell(transform, "list", b"w", key), 0, 9), list_entry(number % 9, b"e"))
    store.set_timers(transform, key, timers(number))


def seen(store: StoredState, number: int, transform: str) -> tuple[object, ...]:
    key = KEYS[number]
    return (
        read(store, Bag(Cell(transform, "bag", b"w", key))),
        read(store, MapEntries(Cell(transform, "map", b"w", key))),
        read(store, ListRange(Cell(transform, "list", b"w", key), 0, 9)),
        list(store.timers(transform, key)),
    )


def partition_of(number: int, partitions: int) -> int:
    hashed = hash_of(KEYS[number])
    (found,) = (p for p in range(partitions) if hashed in hashes_of(p, GROUPS, partitions))
    return found


def moved(
    old: list[SortedRecords],
    after: int,
    *,
    by_id: bool = False,
    stage: int = STAGE,
    transforms: tuple[str, str] = ("", ""),
) -> list[SortedRecords]:
    new = [SortedRecords() for _ in range(after)]
    for partition, target in enumerate(new):
        for source in overlapping(partition, GROUPS, after, len(old)):
            share = Share(
                hashes_of(source, GROUPS, len(old)),
                hashes_of(partition, GROUPS, after),
                partition,
                overlapping(source, GROUPS, len(old), after),
            )
            copy_keys(
                old[source],
                target,
                (STAGE, stage),
                share,
                by_id=by_id,
                left_out=("apart",),
                transforms=transforms,
            )
    return new


@pytest.mark.parametrize("after", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("before", [1, 2, 3, 16])
def test_each_key_goes_with_all_that_it_has(before: int, after: int) -> None:
    old = [SortedRecords() for _ in range(before)]
    direct = [SortedRecords() for _ in range(after)]
    for number in range(len(KEYS)):
        for transform in ("t", "u"):
            fill(state(old[partition_of(number, before)]), number, transform)
            fill(state(direct[partition_of(number, after)]), number, transform)
    for records in old:
        state(records).append(NOBODYS, b"not of a key")
    new = moved(old, after)
    for number in range(len(KEYS)):
        store = state(new[partition_of(number, after)])
        for transform in ("t", "u"):
            expected = seen(state(old[partition_of(number, before)]), number, transform)
            assert expected[0]
            assert seen(store, number, transform) == expected
    for records, expected_records in zip(new, direct, strict=True):
        # As if the keys had always been there; the stamps of cells are random.
        assert records.values.keys() == expected_records.values.keys()
        store, other = state(records), state(expected_records)
        assert store.next_due() == other.next_due()
        assert store.least_hold() == other.least_hold()
        assert store.count_holders() == other.count_holders()


def test_stages_and_transforms_may_have_other_numbers_and_names() -> None:
    """Only one of the transforms has another name; the other is a constant of this package."""
    old, direct = [SortedRecords()], [SortedRecords(), SortedRecords()]
    for number in range(len(KEYS)):
        for transform, now in (("t", "renamed"), ("u", "u")):
            fill(state(old[0]), number, transform)
            fill(state(direct[partition_of(number, 2)], 1), number, now)
    new = moved(old, 2, stage=1, transforms=("t", "renamed"))
    for number in range(len(KEYS)):
        store = state(new[partition_of(number, 2)], 1)
        for transform, now in (("t", "renamed"), ("u", "u")):
            assert seen(store, number, now) == seen(state(old[0]), number, transform)
    for records, expected in zip(new, direct, strict=True):
        assert records.values.keys() == expected.values.keys()


@pytest.mark.parametrize("after", [1, 2, 5])
def test_what_has_a_separate_id_is_spread(after: int) -> None:
    """All are of one key, and may be in any shard."""
    old = [SortedRecords(), SortedRecords()]
    ids = [f"id {number}" for number in range(40)]
    for number, id_ in enumerate(ids):
        store = state(old[number % 2])
        store.append(Bag(Cell(id_, "residual", b"w", KEYS[1])), id_.encode())
        store.set_timers(id_, KEYS[1], timers(1 + number % 3))
    new = moved(old, after, by_id=True)
    holding = []
    for number, id_ in enumerate(ids):
        (holder,) = (
            place
            for place, records in enumerate(new)
            if read(state(records), Bag(Cell(id_, "residual", b"w", KEYS[1]))) == id_.encode()
        )
        assert list(state(new[holder]).timers(id_, KEYS[1])) == timers(1 + number % 3)
        holding.append(holder)
    assert set(holding) == set(range(after))


@pytest.mark.parametrize("number", [0, 7])
@pytest.mark.parametrize("has_cells", [True, False])
def test_a_key_in_the_wrong_shard_is_not_lost_in_silence(number: int, has_cells: bool) -> None:
    old = [SortedRecords(), SortedRecords()]
    wrong = state(old[1 - partition_of(number, 2)])
    if has_cells:
        wrong.append(Bag(Cell("t", "bag", b"w", KEYS[number])), b"x")
    else:
        wrong.set_timers("t", KEYS[number], timers(3))
    with pytest.raises(InvariantError, match="is in a shard with"):
        moved(old, 3)
