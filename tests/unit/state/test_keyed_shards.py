"""Whatever a state store loses, the keyed records of a stage are what a dict would be."""

import io
import os
import random
from collections import Counter
from pathlib import Path
from typing import BinaryIO

import pytest

from beam_spark_runner.recovery.sweep import keyed_delta_name
from beam_spark_runner.state import chain
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.delta import CorruptDeltaError
from beam_spark_runner.state.remote import keyed_delta, keyed_shard, stored_groups
from beam_spark_runner.state.remote.key_store import OvertakenError, StateStoreError, Structure
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.store_keys import StoreKeys, numbered
from tests.examples import examples
from tests.unit.state.simulated_store import Group, SimulatedStore
from tests.unit.state.sorted_records import SortedRecords

KEY_GROUPS = 4
USER_KEYS = [*(bytes([number]) * 3 for number in range(6)), b"long" * 50]
KEYS = StoreKeys(0)
PREFIXES = [
    *(KEYS.of_key(each) for each in USER_KEYS),
    *(KEYS.timers_of_key(each) for each in USER_KEYS),
    *map(KEYS.due_in, (b"e", b"p")),
    KEYS.holds(),
]
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


def name_of(version: ShardVersion) -> str:
    return keyed_delta_name("job", 1, 0, *version)


class Attempt:
    """A shard at work, and what it should hold."""

    def __init__(self, shard: KeyedShard, content: SortedRecords, epoch: int) -> None:
        self.shard, self.epoch = shard, epoch
        self.content = SortedRecords()
        for key, value in content.values.items():
            self.content.put(key, value)


class Walk:
    """A random walk: attempts, of which some are accepted, on a store that fails."""

    def __init__(self, seed: int, scratch: Path) -> None:
        self.random = random.Random(seed)
        self.scratch = scratch
        self.files, self.store = Files(), SimulatedStore()
        self.snapshots = [self.store.snapshot()]
        self.head: ShardVersion | None = None
        self.committed = SortedRecords()
        self.attempt: Attempt | None = None
        self.epoch = self.drawn = 0
        self.suspended: list[Attempt] = []
        self.seen: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        """Walk, and check the content after the last step."""
        kinds = ("write", "read", "seal", "suspend", "resume", "lose", "harm", "disconnect")
        for kind in self.random.choices(kinds, (8, 8, 8, 1, 1, 1, 0.3, 0.5), k=steps):
            try:
                getattr(self, kind)()
                self.seen[kind] += 1
            except StateStoreError:
                self._abandon()
        self.recover()
        self._abandon()
        self.check(self._at_work())
        for each in (self._at_work(), *self.suspended):
            each.shard.close()

    def recover(self) -> None:
        """End the failures of the store."""
        self.store.fails_after = self.store.loses_after = None

    def _at_work(self) -> Attempt:
        if self.attempt is None:
            groups = range(KEY_GROUPS)
            shard = KeyedShard(
                self.store, groups, KEY_GROUPS, self.files, name_of, self.head, self.scratch
            )
            self.seen["rebuilt"] += shard.was_rebuilt
            self.attempt = Attempt(shard, self.committed, self.epoch + 1)
            self._note_moment()
        return self.attempt

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
        attempt = self._at_work()
        for _ in range(self.random.choice((1, 3, 30))):
            key = self._record()
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
            attempt.shard.records.delete_prefix(prefix)
            attempt.content.delete_prefix(prefix)

    def read(self) -> None:
        attempt = self._at_work()
        key = self._record()
        assert attempt.shard.records.get(key) == attempt.content.get(key)
        prefix = self.random.choice([each for each in PREFIXES if key.startswith(each)])
        found = list(attempt.shard.records.scan(prefix, key))
        assert found == list(attempt.content.scan(prefix, key))

    def check(self, attempt: Attempt) -> None:
        for prefix in PREFIXES:
            found = list(attempt.shard.records.scan(prefix))
            assert found == list(attempt.content.scan(prefix))
        has_keys = any(key[2:3] in (b"c", b"t") for key in attempt.content.values)
        found = list(attempt.shard.records.scan(KEYS.stage))
        assert bool(found) == has_keys

    def seal(self) -> None:
        attempt = self._at_work()
        if self.random.random() < 0.2:
            self.check(attempt)
        self.drawn += 1
        sealed = attempt.shard.seal(ShardVersion(attempt.epoch, self.drawn))
        if self.random.random() < 0.8:  # it is accepted
            self.epoch, self.committed = attempt.epoch, attempt.content
            self.head = sealed[-1].version if sealed else None
            needed = {name_of(link.version) for link in sealed}
            for name in self.files.files.keys() - needed:
                del self.files.files[name]
        self._abandon()

    def _abandon(self) -> None:
        if self.attempt is not None:
            self.attempt.shard.close()
            self.attempt = None

    def suspend(self) -> None:
        """Another attempt runs, and this one does not notice it."""
        if self.attempt is not None:
            self.suspended.append(self.attempt)
            self.attempt = None

    def resume(self) -> None:
        """A suspended attempt brings groups to its head, which may be an old one."""
        if self.suspended:
            shard = self.suspended[-1].shard
            with_ = self.random.sample(range(KEY_GROUPS), 2)
            try:
                shard._advance(with_)
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
    monkeypatch.setattr(stored_groups, "_PAGE", 3)
    monkeypatch.setattr(stored_groups, "LOADED_BYTES", 500)


@pytest.mark.parametrize("part", range(4))
def test_records_are_what_a_dict_would_be(
    part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    seen: Counter[str] = Counter()
    for _ in range(examples(100)):
        seed = int(os.environ.get("SEED", 0)) or random.randrange(1 << 32)
        walk = Walk(seed, tmp_path)
        try:
            walk.run(60)
        except BaseException as error:
            raise AssertionError(f"SEED={seed}") from error
        seen += walk.seen
    assert {"write", "read", "seal", "resume", "lose", "harm", "rebuilt"} <= seen.keys()
    assert not list(tmp_path.iterdir())


def test_a_rebuild_of_which_the_store_loses_a_part_is_no_rebuild(tmp_path: Path) -> None:
    files, store = Files(), SimulatedStore()

    def opened(head: ShardVersion | None) -> KeyedShard:
        return KeyedShard(store, [0], 1, files, name_of, head, tmp_path)

    keys = [KEYS.of_window("step", b"w", b"key %d" % number) for number in range(2_000)]
    version = ShardVersion(1, 1)
    with opened(None) as shard:
        for key in keys:
            shard.records.put(key, b"value")
        shard.seal(version)
    store.groups[0] = Group()
    store.groups[0].entries[Structure.PACKS][b"a harmed group"] = b""
    store.loses_after = 2  # after the group was opened, and something was added
    with pytest.raises(StateStoreError, match="it has lost what was just written"):
        opened(version)
    assert not store.installed
    with opened(version) as shard:
        assert all(shard.records.get(key) == b"value" for key in keys)
