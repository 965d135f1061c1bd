"""Copies the cells and timers of a stage to new shards, for another number of partitions."""

from collections.abc import Callable, Collection, Iterator
from typing import Protocol

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.routing import HASH_MASK
from beam_spark_runner.state.locked_records import SortedRecords
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.store_keys import StoreKeys, hash_of_name, hash_of_owner


class Share(Protocol):
    """The part of an old shard that is copied to a new one."""

    @property
    def source(self) -> range:
        """The range of key hashes of the old shard."""
        ...

    @property
    def mine(self) -> range:
        """The range of key hashes of the new shard."""
        ...

    def has_id(self, hashed: int) -> bool:
        """Whether data that is divided by transform id, not by key, goes to the new shard.

        Args:
            hashed: The hash of the transform id.
        """
        ...


def copy_keys(
    source: SortedRecords,
    target: SortedRecords,
    stages: tuple[int, int],
    share: Share,
    *,
    by_id: bool,
    left_out: Collection[str],
    transforms: tuple[str, str] = ("", ""),
    lists_holds: bool = False,
) -> None:
    """Copy cells and timers of keys from an old shard to a new one, which has none of them.

    Args:
        source: The records of the old shard.
        target: The records of the new shard.
        stages: The numbers of the stage in the old shard and in the new one.
        share: The part of the old shard that is copied.
        by_id: Whether the data is divided by transform id and not by key, as residuals are.
        left_out: The transform ids under which data without a user key (an empty one) is stored,
            which is not copied.
        transforms: The ids of the stateful transform in the old shard and in the new one.
        lists_holds: See ``StoredState``, of the new shard.

    Raises:
        InvariantError: A key is in a shard to which it does not belong.
    """
    keys, keys_now = map(StoreKeys, stages)
    renamed = {transforms[0]: transforms[1]}
    left_out_owners = {keys.owner(transform, b"") for transform in left_out}

    def cells(first_hash: int) -> Iterator[tuple[bytes, bytes, bytes]]:
        prefix, start = keys.cells(first_hash)
        for record, value in source.scan(prefix, start):
            owner = keys.owner_of_cell(record)
            if owner not in left_out_owners:
                yield owner, keys_now.cell_in(record, *transforms), value

    if by_id:
        goes = _by_id(share)
        for owner, record, value in cells(0):
            if goes(owner):
                target.put(record, value)
    else:
        goes = _by_key(share)
        for owner, _, _ in cells(0):
            goes(owner)
            break
        for owner, _, _ in cells(share.source.stop) if share.source.stop <= HASH_MASK else ():
            goes(owner)
        for owner, record, value in cells(share.mine.start):
            if hash_of_owner(owner) >= share.mine.stop:
                break
            target.put(record, value)
    old_state = StoredState(source, stages[0], count_nothing)
    new_state = StoredState(target, stages[1], count_nothing, lists_holds=lists_holds)
    for transform, key, timers in old_state.all_timers():
        owner = keys.owner(transform, key)
        if owner not in left_out_owners and goes(owner):
            new_state.add_timers(renamed.get(transform, transform), key, timers)


def _by_key(share: Share) -> Callable[[bytes], bool]:
    def goes(owner: bytes) -> bool:
        hashed = hash_of_owner(owner)
        if hashed not in share.source:
            raise InvariantError(f"the hash {hashed} is in a shard with {share.source}")
        return hashed in share.mine

    return goes


def _by_id(share: Share) -> Callable[[bytes], bool]:
    return lambda owner: share.has_id(hash_of_name(owner))


def count_nothing(*_: object) -> int:
    """Take the place of ``CountValues`` where the values of multimaps are never counted."""
    raise InvariantError("values of maps are copied as they are")
