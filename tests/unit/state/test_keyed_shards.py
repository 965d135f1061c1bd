"""Whatever a state store loses, the keyed records of a stage are what a dict would be."""

import io
import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from beam_spark_runner.core.key_groups import group_of, groups_of
from beam_spark_runner.recovery.heads import Head, KeyedHead, repartitioned
from beam_spark_runner.recovery.sweep import keyed_delta_name
from beam_spark_runner.state import chain
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.delta import CorruptDeltaError
from beam_spark_runner.state.remote import (
    keyed_delta,
    keyed_shard,
    overlay,
    pieces,
    stored_entries,
    stored_groups,
)
from beam_spark_runner.state.remote.key_store import OvertakenError, StateStoreError, Structure
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_keys import (
    STAGE_BYTES,
    index_of,
    is_of_key,
    record_of_key,
    user_key_in,
)
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.remote.loaded_packs import PackCache, PackPlace
from beam_spark_runner.state.store_keys import StoreKeys, hash_of_owner, numbered
from tests.examples import examples
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.sorted_records import SortedRecords

KEY_GROUPS, STORE = 6, 1
USER_KEYS = [*(bytes([number]) * 3 for number in range(6)), b"long" * 50]
KEYS = StoreKeys(0)
PREFIXES = [
    *(KEYS.of_key(each) for each in USER_KEYS),
    *(KEYS.timers_of_key(each) for each in USER_KEYS),
    *map(KEYS.due_in, (b"e", b"p")),
    KEYS.holds(),
]
RARE = ("lose", "harm", "resume", "rebuilt", "rebuilt from parts", "chains in a row")
CACHE_BYTES = 5_000
SIZES = (0, 1, 3, 100, 240, 2_000)


class Files:
    """Deltas in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def open(self, name: str) -> BinaryIO:
        if name not in self.files:
            raise FileNotFoundError(name)
        return io.BytesIO(self.files[name])

    def put(self, name: str, local: Path) -> None:
        self.files[name] = local.read_bytes()


def name_of(partition: int, version: ShardVersion) -> str:
    return keyed_delta_name("job", STORE, partition, *version)


def group_in(key: bytes) -> int:
    """Return the group of a record, or of records that begin with the prefix of a user key."""
    record = key[STAGE_BYTES:]
    user_key = (
        record_of_key(record).user_key if is_of_key(record) else user_key_in(index_of(record)[1])
    )
    return group_of(hash_of_owner(user_key), KEY_GROUPS)


def as_tasks_know(head: KeyedHead) -> KeyedHead:
    """Return a head without the older deltas, which tasks find in the newest one."""
    parts = (
        part._replace(
            chains=tuple(chain._replace(head=Head(chain.head.delta)) for chain in part.chains)
        )
        for part in head.parts
    )
    return KeyedHead(None if head.own is None else Head(head.own.delta), tuple(parts))


class Attempt:
    """A shard at work, and what it should hold."""

    def __init__(self, shard: KeyedShard, groups: range, content: SortedRecords) -> None:
        self.shard, self.groups = shard, groups
        self.content = SortedRecords()
        for key, value in content.values.items():
            if group_in(key) in groups:
                self.content.put(key, value)


class Walk:
    """A random walk: attempts, of which some are accepted, on a store that fails."""

    def __init__(self, seed: int, scratch: Path) -> None:
        self.random = random.Random(seed)
        self.scratch = scratch
        self.files, self.store = Files(), SimulatedStore()
        self.snapshots = [self.store.snapshot()]
        self.partitions = self.random.randint(1, KEY_GROUPS)
        self.heads: dict[tuple[int, int], KeyedHead] = {}
        self.committed = SortedRecords()
        self.attempts: dict[int, Attempt] = {}
        self.epoch = self.drawn = 0
        self.suspended: list[Attempt] = []
        self.cache = PackCache()
        self.seen: Counter[str] = Counter()
        self.is_claimed = True
        self.store.is_known = lambda: self.is_claimed

    def claim(self) -> None:
        """Do what a driver does before it repeats what has failed."""
        self.is_claimed = True

    def run(self, steps: int) -> None:
        """Walk, and check the content after the last step."""
        weights = {
            **{"write": 8, "read": 8, "seal": 8, "suspend": 1, "resume": 1},
            **{"repartition": 2, "lose": 1, "harm": 0.5, "disconnect": 0.5},
        }
        for kind in self.random.choices([*weights], [*weights.values()], k=steps):
            try:
                getattr(self, kind)()
                self.seen[kind] += 1
            except StateStoreError:
                self._abandon()
                self.claim()
        self.recover()
        self.claim()
        self._abandon()
        for partition in range(self.partitions):
            self.check(self._at_work(partition))
        self._abandon()
        for each in self.suspended:
            each.shard.close()

    def recover(self) -> None:
        """End the failures of the store."""
        self.store.fails_after = self.store.loses_after = None

    def _at_work(self, partition: int) -> Attempt:
        if partition not in self.attempts:
            groups = groups_of(partition, KEY_GROUPS, self.partitions)
            head = as_tasks_know(self.heads.get((STORE, partition), KeyedHead()))
            deltas = KeyedDeltas(self.files, name_of, partition, head)
            shard = KeyedShard(
                *(self.store, groups, KEY_GROUPS, deltas, self.scratch),
                cache=self.cache.at(PackPlace("store", "n", STORE, partition), CACHE_BYTES),
            )
            self.seen["rebuilt"] += shard.was_rebuilt
            self.seen["rebuilt from parts"] += shard.was_rebuilt and bool(head.parts)
            self.seen["chains in a row"] += any(len(part.chains) > 1 for part in head.parts)
            self.attempts[partition] = Attempt(shard, groups, self.committed)
            self._note_moment()
        return self.attempts[partition]

    def _attempt_for(self, group: int) -> Attempt:
        """Return the attempt that has a group."""
        return self._at_work(group * self.partitions // KEY_GROUPS)

    def _any_attempt(self) -> Attempt:
        return self._at_work(self.random.randrange(self.partitions))

    def _note_moment(self) -> None:
        """Note the content of the store, so that it may be set back to it."""
        self.snapshots = [*self.snapshots, self.store.snapshot()][-6:]

    def _record(self) -> bytes:
        """Draw the key of a record."""
        user_key = self.random.choice(USER_KEYS)
        owner = KEYS.owner("step", user_key)
        number = self.random.randrange(20)
        match self.random.choice("ccctdeh"):
            case "c":
                return KEYS.of_window("step", b"w", user_key) + numbered(number)
            case "t":
                return KEYS.timers(owner) + numbered(number)
            case "d":
                return KEYS.due(b"p", number, owner)
            case "e":
                return KEYS.due(b"e", number, owner)
        return KEYS.hold(number) + owner

    def write(self) -> None:
        for _ in range(self.random.choice((1, 3, 30))):
            key = self._record()
            attempt = self._attempt_for(group_in(key))
            if self.random.random() < 0.6:
                value = self.random.randbytes(1) * self.random.choice(SIZES)
                value = b"v" if key[2:3] in b"dh" else value
                attempt.shard.records.put(key, value)
                attempt.content.put(key, value)
            else:
                attempt.shard.records.delete(key)
                attempt.content.delete(key)
        if self.random.random() < 0.2:
            prefix = self.random.choice(PREFIXES)
            if is_of_key(prefix[STAGE_BYTES:]):
                attempt = self._attempt_for(group_in(prefix))
            attempt.shard.records.delete_prefix(prefix)
            attempt.content.delete_prefix(prefix)

    def read(self) -> None:
        key = self._record()
        attempt = self._attempt_for(group_in(key))
        if self.random.random() < 0.3:
            keys = [each for each in USER_KEYS if group_in(KEYS.of_key(each)) in attempt.groups]
            attempt.shard.records.ask_values(map(KEYS.user_key, keys))
        assert attempt.shard.records.get(key) == attempt.content.get(key)
        prefix = self.random.choice([each for each in PREFIXES if key.startswith(each)])
        found = list(attempt.shard.records.scan(prefix, key))
        assert found == list(attempt.content.scan(prefix, key))

    def check(self, attempt: Attempt) -> None:
        for prefix in PREFIXES:
            if is_of_key(prefix[STAGE_BYTES:]) and group_in(prefix) not in attempt.groups:
                continue
            found = list(attempt.shard.records.scan(prefix))
            assert found == list(attempt.content.scan(prefix))
        has_keys = any(key[2:3] in (b"c", b"t") for key in attempt.content.values)
        found = list(attempt.shard.records.scan(KEYS.stage))
        assert bool(found) == has_keys

    def seal(self) -> None:
        attempt = self._any_attempt()
        (partition,) = (each for each, found in self.attempts.items() if found is attempt)
        if self.random.random() < 0.2:
            self.check(attempt)
        self.drawn += 1
        head = attempt.shard.seal(ShardVersion(self.epoch + 1, self.drawn))
        if self.random.random() < 0.8:  # it is accepted
            self.epoch += 1
            others = SortedRecords()
            for key, value in self.committed.values.items():
                if group_in(key) not in attempt.groups:
                    others.put(key, value)
            for key, value in attempt.content.values.items():
                others.put(key, value)
            self.committed = others
            if head.parts:  # the driver has the whole of these
                head = head._replace(parts=self.heads[STORE, partition].parts)
            self.heads[STORE, partition] = head
            self._sweep()
        self.attempts.pop(partition).shard.close()

    def repartition(self) -> None:
        """The partitions get other groups; attempts at the earlier ones may still run."""
        self.suspended += self.attempts.values()
        self.attempts = {}
        partitions = self.random.randint(1, KEY_GROUPS)
        self.heads = repartitioned(self.heads, STORE, self.partitions, partitions, KEY_GROUPS)
        self.partitions = partitions
        self.epoch += 1
        self._sweep()
        if self.random.random() < 0.3:
            self.harm()

    def _sweep(self) -> None:
        needed = {
            name_of(partition, ShardVersion(*delta))
            for (_, number), head in self.heads.items()
            for partition, delta in head.files(number)
        }
        assert needed <= self.files.files.keys()
        for name in self.files.files.keys() - needed:
            del self.files.files[name]

    def _abandon(self) -> None:
        for attempt in self.attempts.values():
            attempt.shard.close()
        self.attempts = {}

    def suspend(self) -> None:
        """Other attempts run, and these do not notice it."""
        self.suspended += self.attempts.values()
        self.attempts = {}

    def resume(self) -> None:
        """A suspended attempt brings groups to its head, which may be an old one."""
        if self.suspended:
            attempt = self.suspended[-1]
            some = self.random.sample(attempt.groups, min(2, len(attempt.groups)))
            try:
                attempt.shard._advance(some)
            except (OvertakenError, StateStoreError, CorruptDeltaError):
                self.suspended.pop().shard.close()

    def lose(self) -> None:
        """The server loses its last changes, of some groups on other nodes than others."""
        snapshot = self.random.choice(self.snapshots)
        self.store.lost_to = {
            group: each for group, each in snapshot.items() if self.random.random() < 0.7
        }
        self.store.loses_after = self.random.randrange(5)

    def harm(self) -> None:
        if self.random.random() < 0.3:
            self.store.groups.clear()
            self.store.installed.clear()
            self.is_claimed = False
        elif self.store.groups:
            group = self.random.choice(list(self.store.groups.values()))
            group.entries[self.random.choice(list(Structure))].clear()

    def disconnect(self) -> None:
        self.store.fails_after = self.random.randrange(4)


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have few entries fill a chunk, a page, and the memory."""
    monkeypatch.setattr(keyed_delta, "CHUNK_CHANGES", 3)
    monkeypatch.setattr(chain, "LARGEST_BYTES", 4_000)
    monkeypatch.setattr(keyed_delta, "LARGEST_BYTES", 4_000)
    monkeypatch.setattr(keyed_shard, "_SENT_BYTES", 500)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 700)
    monkeypatch.setattr(stored_groups, "_PIECES", 1)
    monkeypatch.setattr(overlay, "_FEW", 15)
    monkeypatch.setattr(stored_groups, "_PAGE", 3)
    monkeypatch.setattr(stored_entries, "_AHEAD", 3)
    monkeypatch.setattr(stored_groups, "LOADED_BYTES", 500)


@pytest.mark.parametrize("part", range(4))
def test_records_are_what_a_dict_would_be(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    seen: Counter[str] = Counter()
    walks = 0
    while walks < examples(100) or not all(seen[each] for each in RARE):
        walks += 1
        assert walks < 1_000, seen
        seed = int(os.environ.get("SEED", 0)) or random.randrange(1 << 32)
        walk = Walk(seed, tmp_path)
        try:
            walk.run(60)
        except BaseException as error:
            raise AssertionError(f"SEED={seed}") from error
        seen += walk.seen
    assert not list(tmp_path.iterdir())


def test_another_number_of_partitions_copies_nothing(tmp_path: Path) -> None:
    files, store = Files(), SimulatedStore()
    heads: dict[tuple[int, int], KeyedHead] = {}
    keys = [KEYS.of_window("step", b"w", b"key %d" % number) for number in range(100)]
    expected: dict[bytes, bytes] = {}
    had_parts = 0

    def run(epoch: int, partitions: int, changed: Sequence[bytes]) -> None:
        for number in range(partitions):
            groups = groups_of(number, KEY_GROUPS, partitions)
            deltas = KeyedDeltas(files, name_of, number, heads.get((STORE, number), KeyedHead()))
            with KeyedShard(store, groups, KEY_GROUPS, deltas, tmp_path) as shard:
                assert not shard.was_rebuilt
                for key in keys:
                    if group_in(key) in groups:
                        assert shard.records.get(key) == expected.get(key)
                        if key in changed:
                            shard.records.put(key, b"%d" % epoch)
                            expected[key] = b"%d" % epoch
                heads[STORE, number] = shard.seal(ShardVersion(epoch, number))

    run(1, partitions := 2, keys)
    for epoch, after in enumerate((3, 1, 6, 2, 3), start=2):
        heads = repartitioned(heads, STORE, partitions, after, KEY_GROUPS)
        run(epoch, partitions := after, keys[epoch::20])
        had_parts += any(head.parts for head in heads.values())
    assert had_parts > 2
