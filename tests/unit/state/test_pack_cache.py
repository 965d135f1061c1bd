"""What a worker keeps of a state store between tasks counts only at the version that it has."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from beam_spark_runner.recovery.heads import DeltaId, KeyedHead
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote import loaded_packs
from beam_spark_runner.state.remote.key_store import Packs, Read, Reply
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.remote.loaded_packs import LoadedPacks, PackCache, PackPlace
from beam_spark_runner.state.remote.packs import Pack, encode
from beam_spark_runner.state.store_keys import StoreKeys
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.test_keyed_shards import Files, name_of

KEYS = StoreKeys(0)
COUNTERS = [KEYS.of_window("step", b"w", b"key %d" % number) for number in range(20)]
PLACE = PackPlace("store", "namespace", 1, 0)
MUCH = 1 << 20


class CountingStore(SimulatedStore):
    """Counts the packs that are read."""

    packs_read = 0

    @override
    def read(self, reads: Sequence[Read]) -> Sequence[Reply]:
        self.packs_read += sum(len(each.names) for each in reads if isinstance(each, Packs))
        return super().read(reads)


class Worker:
    """Attempts at one task, one after another, in a process with a cache."""

    def __init__(self, scratch: Path, limit_bytes: int = MUCH) -> None:
        self.store, self._files, self._scratch = CountingStore(), Files(), scratch
        self._cache, self._limit = PackCache(), limit_bytes

    def opened(self, head: KeyedHead) -> KeyedShard:
        return KeyedShard(
            *(self.store, [0], 1, KeyedDeltas(self._files, name_of, 0, head), self._scratch),
            cache=self._cache.at(PLACE, self._limit),
        )

    def count(self, head: KeyedHead, version: ShardVersion) -> tuple[KeyedHead, set[int]]:
        """Count all counters up; return the new head, and what the counters were."""
        with self.opened(head) as shard:
            found = {int(shard.records.get(each) or 0) for each in COUNTERS}
            for each in COUNTERS:
                shard.records.put(each, b"%d" % (int(shard.records.get(each) or 0) + 1))
            return shard.seal(version), found


def test_what_was_changed_last_is_not_read_again(tmp_path: Path) -> None:
    worker, head = Worker(tmp_path), KeyedHead()
    for epoch in range(1, 4):
        head, found = worker.count(head, ShardVersion(epoch, epoch))
        assert found == {epoch - 1}
    assert worker.store.packs_read == 0
    with worker.opened(head) as shard:  # it changes nothing
        assert shard.records.get(COUNTERS[3]) == b"3"
        assert shard.seal(ShardVersion(4, 4)) == head
    _, found = worker.count(head, ShardVersion(5, 5))
    assert found == {3}
    assert worker.store.packs_read == 0


def test_an_attempt_that_was_not_accepted_does_not_show_its_counters(tmp_path: Path) -> None:
    worker = Worker(tmp_path)
    first, _ = worker.count(KeyedHead(), ShardVersion(1, 1))
    worker.count(first, ShardVersion(2, 22))
    accepted, found = worker.count(first, ShardVersion(2, 33))
    assert found == {1}
    assert worker.store.packs_read == len(COUNTERS)
    _, found = worker.count(accepted, ShardVersion(3, 44))
    assert found == {2}


def test_another_attempt_at_the_same_epoch_does_not_count(tmp_path: Path) -> None:
    here, first = Worker(tmp_path), KeyedHead()
    first, _ = here.count(first, ShardVersion(1, 1))
    with here.opened(first) as elsewhere:  # another worker, whose attempt is accepted
        elsewhere.records.put(COUNTERS[0], b"100")
        here.count(first, ShardVersion(2, 22))
        accepted = elsewhere.seal(ShardVersion(2, 33))
    _, found = here.count(accepted, ShardVersion(3, 3))
    assert found == {1, 100}


@pytest.mark.parametrize("limit_bytes", [0, 3_000])
def test_memory_is_limited(tmp_path: Path, limit_bytes: int) -> None:
    worker, head = Worker(tmp_path, limit_bytes), KeyedHead()
    for epoch in range(1, 4):
        head, found = worker.count(head, ShardVersion(epoch, epoch))
        assert found == {epoch - 1}
    if limit_bytes:
        assert 0 < worker.store.packs_read < 2 * len(COUNTERS)
    else:
        assert worker.store.packs_read == 2 * len(COUNTERS)


def test_places_that_were_not_used_make_room() -> None:
    cache, coded = PackCache(), encode(Pack({b"name": bytes(200)}))

    def loaded() -> LoadedPacks:
        made = LoadedPacks()
        for number in range(3):
            made.put(b"key %d" % number, coded)
        return made

    limit, version = 2 * loaded().size_bytes, DeltaId(1, 1)
    places = [cache.at(PLACE._replace(partition=number), limit) for number in range(3)]
    for each in places:
        each.keep(version, loaded())
    kept = [b"key 0" in each.take(version) for each in places]
    assert kept == [False, True, True]
    assert not any(b"key 0" in each.take(version) for each in places)  # they are taken


def test_packs_are_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_packs, "_DECODED", 1)
    loaded, packs = LoadedPacks(), [Pack({b"name": bytes([number])}) for number in range(3)]
    for number, each in enumerate(packs):
        loaded.put(b"%d" % number, encode(each))
    size_bytes = loaded.size_bytes
    loaded.put(b"1", encode(packs[1]))
    assert loaded.size_bytes == size_bytes
    assert [loaded.get(b"%d" % number) for number in (0, 1, 0, 2)] == [
        *(packs[0], packs[1], packs[0], packs[2])
    ]
    loaded.put(b"2", None)
    assert loaded.get(b"2") == Pack()
    assert loaded.get(b"3") is None
    loaded.shrink(0, 2)
    assert [b"%d" % number in loaded for number in range(3)] == [True, False, True]
