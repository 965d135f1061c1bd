"""A task that makes new shards from old ones."""

from pathlib import Path

import pytest

from beam_spark_runner.core.key_groups import hashes_of
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task.shard_copying import (
    NewShard,
    Resharding,
    StageToReshard,
    make_shards,
)
from beam_spark_runner.plan.compatibility import StoredStage
from beam_spark_runner.recovery.migration import MovedStage
from beam_spark_runner.state.backend import Bag, Cell
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.store_keys import hash_of
from beam_spark_runner.storage.mounted_folder import MountedFolder
from tests.unit.state.sorted_records import count_values, read

GROUPS = 8
KEYS = [f"key {number}".encode() for number in range(30)]
PLACE = StoredStage(
    stage=1, level=2, is_exchanged=True, dest=3, is_fed=False, transform="step", kept="state"
)
KEYED = StageToReshard(MovedStage(PLACE, PLACE), is_splittable=False)
FIRST, SECOND = ShardVersion(1, 11), ShardVersion(2, 22)


@pytest.fixture
def places(tmp_path: Path) -> ShardLocations:
    (tmp_path / "deltas").mkdir()
    return ShardLocations(
        lineage="main",
        deltas=str(tmp_path / "deltas"),
        local=str(tmp_path / "local"),
        key_groups=GROUPS,
    )


def shard(places: ShardLocations, partition: int, head: ShardVersion | None) -> Shard:
    return open_shard(
        Path(str(places.local)),
        MountedFolder(places.deltas),
        lineage="main",
        level=2,
        partition=partition,
        head=head,
    )


def resharding(places: ShardLocations, heads: dict[int, ShardVersion], after: int) -> Resharding:
    return Resharding(
        places=places,
        epoch=3,
        before=2,
        after=after,
        heads={(2, partition): head for partition, head in heads.items()},
        stages={2: (KEYED,)},
    )


def made(resharding: Resharding) -> dict[int, ShardVersion]:
    """Return the heads of the shards that a task makes, which gets all of them."""
    shards = list(make_shards(resharding, range(len(resharding.new_shards()))))
    assert {each.level for each in shards} <= {2}
    return {each.partition: version_of(each) for each in shards}


def version_of(made: NewShard) -> ShardVersion:
    assert made.attempt is not None
    return ShardVersion(3, made.attempt)


def bag(key: bytes) -> Bag:
    return Bag(Cell("step", "state", b"w", key))


def test_each_new_shard_has_its_keys_and_needs_no_older_delta(places: ShardLocations) -> None:
    for partition, head in ((0, FIRST), (1, SECOND)):
        with shard(places, partition, None) as old:
            for key in KEYS:
                if hash_of(key) in hashes_of(partition, GROUPS, 2):
                    StoredState(old, 1, count_values).append(bag(key), key)
            old.seal(head)
    heads = made(resharding(places, {0: FIRST, 1: SECOND}, 3))
    assert set(heads) == {0, 1, 2}
    assert not list(Path(str(places.local)).glob("resharding-*"))
    for delta in Path(places.deltas).glob("*-00000000000[12]-*"):
        delta.unlink()
    for partition, head in heads.items():
        mine = hashes_of(partition, GROUPS, 3)
        with shard(places, partition, head) as new:
            store = StoredState(new, 1, count_values)
            found = [read(store, bag(key)) for key in KEYS]
        assert found == [key if hash_of(key) in mine else b"" for key in KEYS]


def test_what_is_empty_has_no_delta(places: ShardLocations) -> None:
    key = next(key for key in KEYS if hash_of(key) in hashes_of(0, GROUPS, 8))
    with shard(places, 0, None) as old:
        StoredState(old, 1, count_values).append(bag(key), b"x")
        old.seal(FIRST)
    heads = made(resharding(places, {0: FIRST}, 8))
    assert set(heads) == {0}
    assert len(list(Path(places.deltas).iterdir())) == 2


def test_a_stage_may_come_to_another_level_and_name(places: ShardLocations) -> None:
    """Of the old level's stages, one is in each of two new levels."""
    for partition, head in ((0, FIRST), (1, SECOND)):
        with shard(places, partition, None) as old:
            for key in KEYS:
                if hash_of(key) in hashes_of(partition, GROUPS, 2):
                    StoredState(old, 1, count_values).append(bag(key), key)
                    StoredState(old, 7, count_values).append(bag(key), key * 2)
            old.seal(head)
    other = PLACE._replace(stage=7, transform="step")
    resharding_ = Resharding(
        places=places,
        epoch=3,
        before=2,
        after=2,
        heads={(2, 0): FIRST, (2, 1): SECOND},
        stages={
            4: (StageToReshard(MovedStage(PLACE, PLACE._replace(level=4, stage=5)), False),),
            2: (StageToReshard(MovedStage(other, other._replace(transform="now")), False),),
        },
    )
    found: dict[int, list[bytes]] = {}
    for each in make_shards(resharding_, range(4)):
        level, stage, transform = (4, 5, "step") if each.level == 4 else (2, 7, "now")
        with open_shard(
            Path(str(places.local)),
            MountedFolder(places.deltas),
            lineage="main",
            level=level,
            partition=each.partition,
            head=version_of(each),
        ) as new:
            store = StoredState(new, stage, count_values)
            bags = (Bag(Cell(transform, "state", b"w", key)) for key in KEYS)
            found.setdefault(level, []).extend(filter(None, (read(store, each) for each in bags)))
    assert {level: sorted(values) for level, values in found.items()} == {
        4: sorted(KEYS),
        2: sorted(key * 2 for key in KEYS),
    }
