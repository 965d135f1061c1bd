"""A group of keys that is copied to a state store again, while the store loses some of it."""

from pathlib import Path

import pytest

from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import StateStoreError, Structure
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from tests.unit.state.simulated_store import Group, SimulatedStore
from tests.unit.state.test_keyed_shards import KEYS, Files, name_of


def test_two_attempts_that_rebuild_at_the_same_time_both_end(tmp_path: Path) -> None:
    """Whenever the second one runs, neither takes from the other what it has added."""
    files = Files()
    keys = [KEYS.of_window("step", b"w", b"key %d" % number) for number in range(1_200)]

    def opened(store: SimulatedStore, head: KeyedHead) -> KeyedShard:
        return KeyedShard(store, [0, 1], 2, KeyedDeltas(files, name_of, 0, head), tmp_path)

    def check(shard: KeyedShard) -> None:
        shard.records.ask(KEYS.user_key(b"key %d" % number) for number in range(len(keys)))
        assert all(shard.records.get(key) == b"value" for key in keys)

    with opened(SimulatedStore(), KeyedHead()) as shard:
        for key in keys:
            shard.records.put(key, b"value")
        head = shard.seal(ShardVersion(1, 1))
    seen: list[int] = []
    for moment in range(1, 30):
        store = SimulatedStore()
        for number in range(2):
            group = store.groups[number] = Group()
            group.entries[Structure.PACKS][b"a harmed group"] = b""

        def second(store: SimulatedStore = store, moment: int = moment) -> None:
            if store.calls == moment:
                store.on_call = lambda: None
                with opened(store, head) as shard:
                    seen.append(moment)
                    check(shard)

        store.on_call = second
        with opened(store, head) as shard:
            assert shard.was_rebuilt
            check(shard)
        assert not store.installed
    assert len(seen) > 5


def test_a_rebuild_of_which_the_store_loses_a_part_is_no_rebuild(tmp_path: Path) -> None:
    files, store = Files(), SimulatedStore()

    def opened(head: KeyedHead) -> KeyedShard:
        return KeyedShard(store, [0], 1, KeyedDeltas(files, name_of, 0, head), tmp_path)

    keys = [KEYS.of_window("step", b"w", b"key %d" % number) for number in range(2_000)]
    version = ShardVersion(1, 1)
    with opened(KeyedHead()) as shard:
        for key in keys:
            shard.records.put(key, b"value")
        head = shard.seal(version)
    store.groups[0] = Group()
    store.groups[0].entries[Structure.PACKS][b"a harmed group"] = b""
    store.loses_after = 3  # after the group was opened, and something was added
    with pytest.raises(StateStoreError, match="it has lost what was just written"):
        opened(head)
    assert not store.installed
    with opened(head) as shard:
        assert all(shard.records.get(key) == b"value" for key in keys)
