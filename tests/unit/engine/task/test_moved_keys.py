"""Keys that enter the state store, and leave it again."""

from pathlib import Path

import pytest

from beam_spark_runner.core.key_groups import groups_of, hashes_of
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task import keyed_shards
from beam_spark_runner.engine.task.shard_copying import (
    Resharding,
    StageToReshard,
    make_shards,
)
from beam_spark_runner.harness.waiting import WAITING
from beam_spark_runner.plan.compatibility import StoredStage
from beam_spark_runner.recovery.heads import DeltaId, Head, KeyedHead, repartitioned
from beam_spark_runner.recovery.migration import MovedStage
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StoredTimer
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.store_keys import hash_of
from tests.unit.engine.task.test_new_shards import shard
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.sorted_records import count_values, read
from tests.unit.state.test_resharding import KEYS, fill

GROUPS, NUMBER = 8, 4
PLACE = StoredStage(
    stage=1, level=2, is_exchanged=True, dest=3, is_fed=False, transform="step", kept="state"
)
NOBODYS = Bag(Cell(WAITING, "elements", b"w", b""))
WAITS = b"an element that waits"
HOLD = StoredTimer("", "", b"w", Domain.EVENT_TIME, MAX_US, 5, b"")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardLocations:
    (tmp_path / "deltas").mkdir()
    store = SimulatedStore()
    monkeypatch.setattr(keyed_shards, "key_store", lambda *_: store)
    return ShardLocations(
        lineage="main",
        deltas=str(tmp_path / "deltas"),
        local=str(tmp_path / "local"),
        key_groups=GROUPS,
        state_store=StateStoreAddress("simulated"),
    )


def content(places: ShardLocations, heads: dict[int, ShardVersion]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for partition, head in heads.items():
        with shard(places, partition, head) as opened:
            found |= dict(opened.scan(b""))
    return found


def made(wanted: Resharding) -> tuple[dict[int, ShardVersion], dict[tuple[int, int], KeyedHead]]:
    shards: dict[int, ShardVersion] = {}
    keyed: dict[tuple[int, int], KeyedHead] = {}
    for each in make_shards(wanted, range(len(wanted.new_shards()))):
        assert each.problem is None
        assert each.attempt is not None
        if each.store is None:
            shards[each.partition] = ShardVersion(wanted.epoch, each.attempt)
        else:
            own = Head(DeltaId(wanted.epoch, each.attempt))
            keyed[each.store, each.partition] = KeyedHead(own)
    return shards, keyed


@pytest.mark.parametrize("partitions", [(2, 2, 2), (2, 3, 1), (1, 4, 3)])
def test_all_records_of_keys_return(places: ShardLocations, partitions: tuple[int, ...]) -> None:
    first, second, third = partitions
    heads: dict[int, ShardVersion] = {}
    for partition in range(first):
        with shard(places, partition, None) as old:
            for number, key in enumerate(KEYS):
                if hash_of(key) in hashes_of(partition, GROUPS, first):
                    fill(StoredState(old, 1, count_values), number, "step")
            if not partition:
                StoredState(old, 1, count_values).append(NOBODYS, WAITS)
                StoredState(old, 1, count_values).set_timers(WAITING, b"", [HOLD])
            head = old.seal(ShardVersion(1, 1 + partition))
            assert head is not None
            heads[partition] = head
    before = content(places, heads)
    there = PLACE._replace(stage=7, transform="renamed")
    heads, keyed = made(
        Resharding(
            places=places,
            epoch=2,
            before=first,
            after=second,
            heads={(2, partition): head for partition, head in heads.items()},
            stages={2: (StageToReshard(MovedStage(PLACE, there), False, enters=NUMBER),)},
            namespace="here",
        )
    )
    rest = content(places, heads)
    assert len(heads) == 1
    assert rest
    assert len(rest) < 6
    assert set(keyed) == {(NUMBER, partition) for partition in range(second)}

    for partition in range(second):  # an epoch that changes one key
        groups = groups_of(partition, GROUPS, second)
        deltas = keyed_shards.keyed_deltas(places, NUMBER, partition, keyed[NUMBER, partition])
        opened = keyed_shards.keyed_shard(
            places, "here", NUMBER, deltas, groups, Path(str(places.local))
        )
        with opened:
            store = StoredState(
                opened.records,
                0,
                count_values,
                lists_holds=True,
                own_transform="renamed",
                ask=opened.records.ask,
            )
            for number, key in enumerate(KEYS):
                if hash_of(key) in hashes_of(partition, GROUPS, second):
                    bag = Bag(Cell("renamed", "bag", b"w", key))
                    assert read(store, bag) == b"x" * 300 + b"y" * number
                    if number == 5:
                        store.append(bag, b"changed")
                        store.set_timers("renamed", key, ())
            keyed[NUMBER, partition] = opened.seal(ShardVersion(3, 1 + partition))
    keyed = repartitioned(keyed, NUMBER, second, 2, GROUPS)
    heads, keyed = made(
        Resharding(
            places=places,
            epoch=4,
            before=2,
            after=third,
            heads={(2, partition): head for partition, head in heads.items()},
            stages={2: (StageToReshard(MovedStage(there, PLACE), False, leaves=NUMBER),)},
            keyed=keyed,
        )
    )
    assert not keyed
    with shard(places, 0, None) as expected:
        for record, value in before.items():
            expected.put(record, value)
        store = StoredState(expected, 1, count_values)
        store.append(Bag(Cell("step", "bag", b"w", KEYS[5])), b"changed")
        store.set_timers("step", KEYS[5], ())
        left = dict(expected.scan(b""))
    assert _comparable(content(places, heads)) == _comparable(left)


def _comparable(records: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Drop counts of holders, of which each partition has its own, and shorten random ids."""
    return {
        record: value[-len(WAITS) :] if value.endswith(WAITS) else value
        for record, value in records.items()
        if record[2:3] != b"h"
    }
