"""Moves the state of a streaming pipeline to other partitions, or to another pipeline version.

Each task makes one new shard from the old ones that have its key groups. Its delta has all the
data of the shard, so that no old delta is needed once it is committed.
"""

import contextlib
import functools
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.core.key_groups import hashes_of, overlapping
from beam_spark_runner.engine.epoch_files import folder_of_copies, folder_of_epochs
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.harness.stable import STABLE, copy_stable
from beam_spark_runner.harness.waiting import WAITING, copy_waiting
from beam_spark_runner.recovery.migration import MovedStage
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.resharding import copy_keys, count_nothing
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.state.store import StoredState


class NewShard(NamedTuple):
    """A shard that a task has made, or could not make.

    Attributes:
        level: the level of the shard.
        partition: the partition of the shard.
        attempt: the attempt that has stored it. None: it could not be stored.
        place: the storage that does not work.
        problem: what is wrong with it. None: nothing.
    """

    level: int
    partition: int
    attempt: int | None = None
    place: str | None = None
    problem: str | None = None


class StageToReshard(NamedTuple):
    """A stage that stores data in the shards of its level.

    Attributes:
        places: where its data is in the old shards, and in the new ones.
        is_splittable: it stores restrictions.
    """

    places: MovedStage
    is_splittable: bool


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
    """

    places: ShardLocations
    epoch: int
    before: int
    after: int
    heads: Mapping[tuple[int, int], ShardVersion]
    stages: Mapping[int, Sequence[StageToReshard]]

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
            attempt = _make_shard(resharding, level, partition)
        except CheckpointStorageError as error:
            yield NewShard(level, partition, place=error.place, problem=error.problem)
            return
        if attempt is not None:
            yield NewShard(level, partition, attempt)


def _make_shard(resharding: Resharding, level: int, partition: int) -> int | None:
    """Make one new shard; return the attempt that has stored it, or None if it is empty."""
    attempt = random.SystemRandom().getrandbits(63)
    stages = resharding.stages[level]
    after = resharding.after if stages[0].places.now.is_exchanged else 1
    groups = resharding.places.key_groups
    with _folder(resharding.places) as folder:
        open_in = functools.partial(_open, resharding.places, folder=folder)
        with open_in(level, partition, name="new", head=None) as new:
            for old_level in {stage.places.before.level for stage in stages}:
                moving = [stage for stage in stages if stage.places.before.level == old_level]
                was_exchanged = moving[0].places.before.is_exchanged
                before = resharding.before if was_exchanged else 1
                for old in overlapping(partition, groups, after, before):
                    head = resharding.heads.get((old_level, old))
                    if head is None:
                        continue
                    share = _Share(old, partition, groups, before, after)
                    with open_in(old_level, old, name="old", head=head) as shard:
                        for stage in moving:
                            _copy(shard, new, stage, share)
            head = new.seal(ShardVersion(resharding.epoch, attempt))
    return None if head is None else attempt


def _copy(old: Shard, new: Shard, stage: StageToReshard, share: "_Share") -> None:
    before, now = stage.places
    copy_keys(
        old,
        new,
        (before.stage, now.stage),
        share,
        by_id=stage.is_splittable,
        left_out=(WAITING, STABLE),
        transforms=(before.transform, now.transform),
    )
    stored = StoredState(old, before.stage, count_nothing)
    stores = StoredState(new, now.stage, count_nothing)
    copy_stable(
        stored, stores, lambda hashed: share.has_rest if hashed is None else hashed in share.mine
    )
    if share.has_rest:
        copy_waiting(stored, stores)


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
