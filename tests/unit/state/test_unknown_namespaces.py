"""A state store that does not know the namespace of a checkpoint may be another server."""

import copy
from pathlib import Path

import pytest

from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import StateStoreError
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.test_keyed_shards import KEYS, Files, name_of


def test_a_server_that_does_not_know_the_namespace_gets_no_copy(tmp_path: Path) -> None:
    files, store, other = Files(), SimulatedStore(), SimulatedStore()
    other.is_known = lambda: False
    keys = [KEYS.of_window("step", b"w", b"key %d" % number) for number in range(9)]
    head = KeyedHead()

    def epoch(number: int, there: SimulatedStore) -> KeyedHead:
        deltas = KeyedDeltas(files, name_of, 0, head)
        with KeyedShard(there, range(2), 2, deltas, tmp_path) as shard:
            for key in keys:
                assert shard.records.get(key) == (b"%d" % (number - 1) if number > 1 else None)
                shard.records.put(key, b"%d" % number)
            return shard.seal(ShardVersion(number, number))

    head = epoch(1, other)  # nothing has to be there
    for number in range(2, 5):
        before = copy.deepcopy(other.groups)
        with pytest.raises(StateStoreError, match="does not know the namespace"):
            epoch(number, other)
        assert not other.installed
        assert [each.tag() for each in other.groups.values()] == [
            each.tag() for each in before.values()
        ]
        head = epoch(number, store)
    store.is_known = lambda: False
    head = epoch(5, store)  # only the last epoch is missing there
    other.is_known = lambda: True
    epoch(6, other)
