"""How often a task asks the state store, and for what."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StoredTimer
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import Names, Opened, Packs, Read, Reply, Values
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.store_keys import StoreKeys, numbered
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.test_keyed_shards import Files, name_of

KEY_GROUPS = 64
KEYS = StoreKeys(0)
USER_KEYS = [b"key %d" % number for number in range(400)]
LONG = bytes(5_000)


class NotingStore(SimulatedStore):
    """Notes what is read, by round trip."""

    def __init__(self) -> None:
        super().__init__()
        self.trips: list[Sequence[Read]] = []

    @override
    def read(self, reads: Sequence[Read]) -> Sequence[Reply]:
        self.trips.append(reads)
        return super().read(reads)


class Task:
    """Attempts at one task, one after another."""

    def __init__(self, scratch: Path) -> None:
        self.store, self._files, self._scratch = NotingStore(), Files(), scratch
        self._head, self._epoch = KeyedHead(), 0

    def opened(self) -> KeyedShard:
        deltas = KeyedDeltas(self._files, name_of, 0, self._head)
        shard = KeyedShard(self.store, range(KEY_GROUPS), KEY_GROUPS, deltas, self._scratch)
        self.store.trips.clear()
        return shard

    def seal(self, shard: KeyedShard) -> list[Sequence[Read]]:
        """Seal a shard; return what was read for it."""
        self.store.trips.clear()
        self._epoch += 1
        self._head = shard.seal(ShardVersion(self._epoch, self._epoch))
        return [*self.store.trips]

    def fill(self) -> None:
        """Give each key a small record, a long one, and a timer."""
        with self.opened() as shard:
            for each in USER_KEYS:
                shard.records.put(small(each), b"value")
                shard.records.put(long(each), LONG)
                shard.records.put(KEYS.due(b"e", 1, KEYS.owner("step", each)), b"v")
            self.seal(shard)


def small(user_key: bytes) -> bytes:
    return KEYS.of_window("step", b"w", user_key)


def long(user_key: bytes) -> bytes:
    return small(user_key) + numbered(1)


def test_a_slice_of_many_groups_takes_few_round_trips(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.fill()
    with task.opened() as shard:
        some = USER_KEYS[:40]
        shard.records.ask(KEYS.user_key(each) for each in some)
        for each in some:
            shard.records.put(long(each), bytes(6_000))
        assert len(task.seal(shard)) <= 8


def test_a_small_slice_takes_one_round_trip_for_each_structure(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.fill()
    with task.opened() as shard:
        shard.records.ask([KEYS.user_key(USER_KEYS[0])])
        shard.records.put(small(USER_KEYS[0]), b"other")
        assert len(task.seal(shard)) <= 3


def test_long_values_are_not_read_ahead(tmp_path: Path) -> None:
    """Else some thousand keys might not fit into memory."""
    task = Task(tmp_path)
    task.fill()
    with task.opened() as shard:
        shard.records.ask(KEYS.user_key(each) for each in USER_KEYS)
        (trip,) = task.store.trips
        assert all(isinstance(each, Packs) for each in trip)
        assert shard.records.get(small(USER_KEYS[0])) == b"value"
        assert len(task.store.trips) == 1
        assert shard.records.get(long(USER_KEYS[0])) == LONG
        assert len(task.store.trips) == 2


def test_groups_in_which_nothing_changes_are_opened_once(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.fill()
    with task.opened() as shard:
        shard.records.put(small(USER_KEYS[0]), b"other")
        task.seal(shard)
    opened: list[int] = []
    open_ = task.store.open

    def noted(groups: Sequence[int]) -> Sequence[Opened]:
        opened.append(len(groups))
        return open_(groups)

    task.store.open = noted  # type: ignore[method-assign]
    with task.opened() as shard:
        assert opened == [KEY_GROUPS, 1]
        assert shard.records.get(small(USER_KEYS[0])) == b"other"


def test_whether_outlying_records_exist_is_asked_without_their_values(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.fill()
    with task.opened() as shard:
        for each in USER_KEYS[:300]:
            shard.records.put(long(each), bytes(400))
        changes = [*shard._changed_records.changes()]
    assert len(changes) == 600
    assert not any(isinstance(each, Values) for trip in task.store.trips for each in trip)
    assert len(task.store.trips) == 2  # for packs, and for what they do not have


def test_few_deletions_do_not_make_a_shard_empty(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.fill()
    with task.opened() as shard:
        for each in USER_KEYS[:-1]:
            shard.records.delete(small(each))
            shard.records.delete(long(each))
        assert [*shard.records.scan(KEYS.stage)]
        assert not task.store.trips


def test_a_shard_is_empty_once_all_records_of_keys_are_deleted(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.fill()
    with task.opened() as shard:
        for each in USER_KEYS:
            shard.records.delete(small(each))
        assert [*shard.records.scan(KEYS.stage)]
        packs = [each for trip in task.store.trips for each in trip if isinstance(each, Packs)]
        assert len(packs) <= KEY_GROUPS
        for each in USER_KEYS:
            shard.records.delete(long(each))
        assert not [*shard.records.scan(KEYS.stage)]
        task.seal(shard)
    with task.opened() as shard:
        assert not [*shard.records.scan(KEYS.stage)]


@pytest.mark.parametrize("fired", [1, 200, len(USER_KEYS)])
def test_due_times_and_holds_are_read_together(fired: int, tmp_path: Path) -> None:
    """And once, although the first ones of both are asked for before and after timers fire."""
    task = Task(tmp_path)

    def state_of(shard: KeyedShard) -> StoredState:
        return StoredState(shard.records, 0, lambda *_: 1, lists_holds=True)

    with task.opened() as shard:
        state = state_of(shard)
        for number, key in enumerate(USER_KEYS):
            timer = StoredTimer("", "", b"w", Domain.EVENT_TIME, 1_000 + number, number, b"")
            state.set_timers("step", key, [timer])
        task.seal(shard)
    with task.opened() as shard:
        state = state_of(shard)
        assert state.next_due() == (1_000, None)
        assert state.least_hold() == 0
        for transform, key in state.due(999 + fired, 0):
            state.set_timers(transform, key, [])
        left = fired < len(USER_KEYS)
        assert state.next_due() == (1_000 + fired if left else None, None)
        assert state.least_hold() == (fired if left else None)
        names = [trip for trip in task.store.trips if any(isinstance(each, Names) for each in trip)]
        assert len(names) == 1


def test_the_values_of_windows_that_are_due_are_read_together(tmp_path: Path) -> None:
    task = Task(tmp_path)
    values = {each: each * 1_000 for each in USER_KEYS}

    def state_of(shard: KeyedShard) -> StoredState:
        records = shard.records
        return StoredState(
            *(records, 0, lambda *_: 1),
            lists_holds=True,
            ask=records.ask,
            ask_due=records.ask_values,
        )

    def window(key: bytes) -> Bag:
        return Bag(Cell("step", "window", b"w", key))

    with task.opened() as shard:
        state = state_of(shard)
        for key, value in values.items():
            state.append(window(key), value)
            due = StoredTimer("", "", b"w", Domain.EVENT_TIME, 5, 5, b"")
            state.set_timers("step", key, [due])
        task.seal(shard)
    with task.opened() as shard:
        state = state_of(shard)
        found = {key: state.whole(window(key)) for _, key in state.due(10, 0)}
        assert found == values
        assert len(task.store.trips) <= 8
