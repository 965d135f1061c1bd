"""How large the groups of keys are that a slice reads as a whole."""

from collections.abc import Sequence
from pathlib import Path

from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.test_keyed_shards import KEYS, Files, name_of


def test_the_size_of_groups_that_are_read_as_a_whole_is_known(tmp_path: Path) -> None:
    files, store = Files(), SimulatedStore()
    keys = [KEYS.of_window("step", b"w", b"key %d" % number) for number in range(50)]

    def changed(head: KeyedHead, version: ShardVersion, some: Sequence[bytes]) -> KeyedHead:
        with KeyedShard(store, [0], 1, KeyedDeltas(files, name_of, 0, head), tmp_path) as shard:
            for key in some:
                shard.records.put(key, bytes(100))
            head = shard.seal(version)
            sizes.append(shard.largest_group_bytes)
            return head

    sizes: list[int] = []
    head = changed(KeyedHead(), ShardVersion(1, 1), keys)
    changed(head, ShardVersion(2, 2), keys[:1])
    assert sizes[0] == 0  # there was nothing in the store yet
    assert 50 * 100 < sizes[1] < 50 * 200
