"""Moves the state of a streaming pipeline: to other partitions, another version, a state store.

Each task makes one new shard from the old ones that have its key groups. Its delta has all the
data of the shard, so that no old delta is needed once it is committed. Keys that are in a state
store remain there, unless the pipeline begins or ends to use one: then they move, too, from the
shards to keyed deltas or the other way around. The server has no part in it.
"""

import contextlib
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.core.key_groups import groups_of, hashes_of, overlapping
from beam_spark_runner.engine.epoch_files import folder_of_copies, folder_of_epochs
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task.keyed_shards import keyed_deltas, keyed_shard
from beam_spark_runner.harness.stable import STABLE, copy_stable
from beam_spark_runner.harness.stored_in_flight import IN_FLIGHT, copy_left
from beam_spark_runner.harness.waiting import WAITING, copy_waiting
from beam_spark_runner.recovery.heads import KeyedHead, KeyedHeads
from beam_spark_runner.recovery.migration import MovedStage
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.locked_records import SortedRecords
from beam_spark_runner.state.remote.key_store import OvertakenError
from beam_spark_runner.state.remote.keyed_content import put_content
from beam_spark_runner.state.remote.keyed_keys import STAGE
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.remote.overlay import Overlay
from beam_spark_runner.state.resharding import copy_keys, count_nothing
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.state.store import StoredState


class NewShard(NamedTuple):
    """A shard or a keyed delta that a task has made, or a shard that it could not make.

    Attributes:
        level: the level of the shard.
        partition: the partition of the shard.
        store: the store number of the keyed delta. None: it is a shard.
        attempt: the attempt that has stored it. None: it could not be stored.
        place: the storage that does not work.
        problem: what is wrong with it. None: nothing.
    """

    level: int
    partition: int
    store: int | None = None
    attempt: int | None = None
    place: str | None = None
    problem: str | None = None


class StageToReshard(NamedTuple):
    """A stage that stores data in the shards of its level.

    Attributes:
        places: where its data is in the old shards, and in the new ones.
        is_splittable: it stores restrictions.
        leaves: its store number so far, if its keys leave the state store. None: they do not.
        enters: its store number from now on, if its keys are stored there now. None: they are not.
    """

    places: MovedStage
    is_splittable: bool
    leaves: int | None = None
    enters: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resharding:
    """Which shards are made, from which old ones.

    Attributes:
        places: the folders of the shards.
        epoch: the epoch that commits the new shards.
        before: the number of partitions of each exchange until now.
        after: the same from now on.
        heads: the heads of the old shards, by level and partition.
        stages: the stages that store data, by their level from now on.
        keyed: the heads of keys that leave the state store.
        namespace: the namespace of keys that enter it.
    """

    places: ShardLocations
    epoch: int
    before: int
    after: int
    heads: Mapping[tuple[int, int], ShardVersion]
    stages: Mapping[int, Sequence[StageToReshard]]
    keyed: KeyedHeads = field(default_factory=dict)
    namespace: str = ""

    def new_shards(self) -> Sequence[tuple[int, int]]:
        """Return level and partition of each new shard."""
        return [
            (level, partition)
            for level, stages in self.stages.items()
            for partition in range(self.after if stages[0].places.now.is_exchanged else 1)
        ]


def make_shards(resharding: Resharding, numbers: Iterable[int]) -> Iterator[NewShard]:
    """Make shards, until one cannot be made; yield all but those that are empty.

    Args:
        resharding: which shards are made.
        numbers: the indices of those to make in ``Resharding.new_shards``.

    Raises:
        CorruptDeltaError: an old shard is damaged.
    """
    shards = resharding.new_shards()
    for number in numbers:
        level, partition = shards[number]
        try:
            yield from _make_shard(resharding, level, partition)
        except (CheckpointStorageError, OvertakenError) as error:
            yield NewShard(level, partition, place=error.place, problem=error.problem)
            return


def _make_shard(resharding: Resharding, level: int, partition: int) -> Iterator[NewShard]:
    """Make one new shard, and its keys in the state store; yield what is not empty."""
    version = ShardVersion(resharding.epoch, random.SystemRandom().getrandbits(63))
    stages = resharding.stages[level]
    after = resharding.after if stages[0].places.now.is_exchanged else 1
    key_groups = resharding.places.key_groups
    groups = groups_of(partition, key_groups, after)
    with _folder(resharding.places) as folder, contextlib.ExitStack() as stack:
        new = stack.enter_context(
            _open(resharding.places, level, partition, folder=folder, name="new", head=None)
        )
        entering: dict[int, KeyedShard] = {}
        for stage in stages:
            if (number := stage.enters) is not None:
                deltas = keyed_deltas(resharding.places, number, partition, KeyedHead())
                shard = keyed_shard(
                    resharding.places, resharding.namespace, number, deltas, groups, folder
                )
                entering[number] = stack.enter_context(shard)
        for old_level in {stage.places.before.level for stage in stages}:
            moving = [stage for stage in stages if stage.places.before.level == old_level]
            before = resharding.before if moving[0].places.before.is_exchanged else 1
            for old in overlapping(partition, key_groups, after, before):
                share = _Share(old, partition, key_groups, before, after)
                with _old_shard(resharding, old_level, old, folder) as old_shard:
                    if old_shard is not None:
                        for stage in moving:
                            keys = new if stage.enters is None else entering[stage.enters].records
                            _copy(old_shard, new, keys, stage, share)
                for stage in moving:
                    if stage.leaves is not None and (stage.leaves, old) in resharding.keyed:
                        with _old_keys(resharding, stage.leaves, old, groups, folder) as old_keys:
                            _copy_keys(old_keys, new, (STAGE, ""), stage, share)
        if new.seal(version) is not None:
            yield NewShard(level, partition, attempt=version.attempt)
        for number, shard in entering.items():
            if shard.seal(version).own is not None:
                yield NewShard(level, partition, number, version.attempt)


@contextlib.contextmanager
def _old_shard(
    resharding: Resharding, level: int, partition: int, folder: Path
) -> Iterator[Shard | None]:
    """Open an old shard; None: it is empty."""
    head = resharding.heads.get((level, partition))
    if head is None:
        yield None
        return
    with _open(resharding.places, level, partition, folder=folder, name="old", head=head) as shard:
        yield shard


@contextlib.contextmanager
def _old_keys(
    resharding: Resharding, number: int, partition: int, groups: range, folder: Path
) -> Iterator[Shard]:
    """Make a shard with the keys that a stage has in the state store, of some groups."""
    places = resharding.places
    deltas = keyed_deltas(places, number, partition, resharding.keyed[number, partition])
    with (
        _open(places, 0, partition, folder=folder, name="left", head=None) as shard,
        contextlib.closing(Overlay(folder)) as entries,
    ):
        put_content(deltas.content(groups), entries, shard)
        yield shard


def _copy(
    old: Shard, new: Shard, keys: SortedRecords, stage: StageToReshard, share: "_Share"
) -> None:
    """Copy what an old shard has of a stage: to a new one, and its keys to where keys are."""
    before, now = stage.places
    _copy_keys(old, keys, (before.stage, before.transform), stage, share)
    old_store = StoredState(old, before.stage, count_nothing)
    new_store = StoredState(new, now.stage, count_nothing)
    copy_stable(
        old_store,
        new_store,
        lambda hashed: share.has_rest if hashed is None else hashed in share.mine,
    )
    copy_left(old_store, new_store, lambda hashed: hashed in share.mine)
    if share.has_rest:
        copy_waiting(old_store, new_store)


def _copy_keys(
    old: Shard,
    keys: SortedRecords,
    before: tuple[int, str],
    stage: StageToReshard,
    share: "_Share",
) -> None:
    """Copy the keys of a stage.

    Args:
        old: where they are.
        keys: where they go.
        before: the numbers of the stage and the id of its transform in the old records.
        stage: the stage.
        share: which keys go there.
    """
    now = (stage.places.now.stage, stage.places.now.transform)
    if stage.enters is not None:
        now = (STAGE, "")
    copy_keys(
        old,
        keys,
        (before[0], now[0]),
        share,
        by_id=stage.is_splittable,
        left_out=(WAITING, STABLE, IN_FLIGHT),
        transforms=(before[1], now[1]),
        lists_holds=stage.enters is not None,
    )


class _Share:
    """The data that goes from one old partition to a new one. See ``resharding.Share``."""

    def __init__(self, old: int, new: int, groups: int, before: int, after: int) -> None:
        self.source = hashes_of(old, groups, before)
        self.mine = hashes_of(new, groups, after)
        self._targets = overlapping(old, groups, before, after)
        self._new = new

    @property
    def has_rest(self) -> bool:
        """Whether data without key or id goes to the new partition."""
        return self._targets[0] == self._new

    def has_id(self, hashed: int) -> bool:
        return self._targets[hashed % len(self._targets)] == self._new


@contextlib.contextmanager
def _folder(places: ShardLocations) -> Iterator[Path]:
    """Make a temporary folder in that of the local copies."""
    copies = folder_of_copies(places)
    copies.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="resharding-", dir=copies))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _open(
    places: ShardLocations,
    level: int,
    partition: int,
    *,
    folder: Path,
    name: str,
    head: ShardVersion | None,
) -> Shard:
    return open_shard(
        folder / name,
        folder_of_epochs(places),
        lineage=places.lineage,
        level=level,
        partition=partition,
        head=head,
    )
