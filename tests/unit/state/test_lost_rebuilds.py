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
