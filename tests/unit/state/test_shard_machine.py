"""Whatever becomes of attempts and copies, a shard is what a dict would be at its head."""

import io
import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from beam_spark_runner.state import chain, delta, local_copy
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.delta_files import DeltaFiles
from beam_spark_runner.state.local_copy import Origin
from beam_spark_runner.state.shards import Shard, open_shard
from beam_spark_runner.state.stored_deltas import ShardStorageError
from tests.examples import examples

KEYS = st.binary(min_size=1, max_size=3).map(lambda key: bytes(b"ab\xff"[b % 3] for b in key))
PREFIXES = KEYS | st.just(b"")
VALUES = st.binary(max_size=30)


class InMemory(DeltaFiles):
    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.is_full = False

    def open(self, name: str) -> BinaryIO:
        if name not in self.files:
            raise FileNotFoundError(name)
        return io.BytesIO(self.files[name])

    def put(self, name: str, local: Path) -> None:
        if self.is_full:
            raise OSError("full")
        self.files[name] = local.read_bytes()


class Attempt:
    """A shard at work, and what it should hold."""

    def __init__(self, shard: Shard, records: dict[bytes, bytes]) -> None:
        self.shard = shard
        self.records = dict(records)
        self.changed = False


class Shards(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.local = Path(tempfile.mkdtemp(prefix="shards-"))
        self.deltas = InMemory()
        self.attempts: list[Attempt] = []
        self.head: ShardVersion | None = None
        self.at_head: dict[bytes, bytes] = {}
        self.epoch = self.drawn = self.boots = 0
        # What the local copy is, and what it was before its last commit: boot and version.
        self.copies: list[tuple[int, ShardVersion | None]] = []
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(delta, "FRAME_BYTES", 50)
        self.patch.setattr(chain, "LARGEST_BYTES", 200)
        self.patch.setattr(local_copy, "boot_id", lambda: str(self.boots))

    def teardown(self) -> None:
        for attempt in self.attempts:
            attempt.shard.close()
        self.patch.undo()
        shutil.rmtree(self.local)

    @precondition(lambda self: len(self.attempts) < 3)
    @rule()
    def begin(self) -> None:
        shard = open_shard(
            self.local,
            self.deltas,
            lineage="job",
            level=0,
            partition=0,
            head=self.head,
        )
        self.attempts.append(Attempt(shard, self.at_head))
        if shard._claim.is_private:
            assert shard.origin is Origin.REBUILT
            return
        wanted = self.boots, self.head
        if wanted in self.copies:
            is_newest = wanted == self.copies[-1]
            assert shard.origin is (Origin.KEPT if is_newest else Origin.UNDONE)
            if not is_newest:
                self.copies.pop()
        else:
            assert shard.origin is Origin.REBUILT
            self.copies = [wanted]

    def some(self, data: st.DataObject) -> Attempt:
        if not self.attempts:
            self.begin()
        return data.draw(st.sampled_from(self.attempts))

    @rule(data=st.data(), records=st.lists(st.tuples(KEYS, VALUES), max_size=4))
    def put(self, data: st.DataObject, records: list[tuple[bytes, bytes]]) -> None:
        attempt = self.some(data)
        for key, value in records:
            attempt.shard.put(key, value)
            attempt.records[key] = value
            attempt.changed = True

    @rule(data=st.data(), key=KEYS)
    def delete(self, data: st.DataObject, key: bytes) -> None:
        attempt = self.some(data)
        is_there = key in attempt.records
        assert attempt.shard.delete(key) == is_there
        attempt.records.pop(key, None)
        attempt.changed |= is_there

    @rule(data=st.data(), prefix=PREFIXES)
    def delete_prefix(self, data: st.DataObject, prefix: bytes) -> None:
        attempt = self.some(data)
        attempt.shard.delete_prefix(prefix)
        for key in [key for key in attempt.records if key.startswith(prefix)]:
            del attempt.records[key]
            attempt.changed = True

    @rule(data=st.data(), prefix=PREFIXES, start=PREFIXES)
    def scan(self, data: st.DataObject, prefix: bytes, start: bytes) -> None:
        attempt = self.some(data)
        expected = sorted(
            (key, value)
            for key, value in attempt.records.items()
            if key.startswith(prefix) and key >= start
        )
        assert list(attempt.shard.scan(prefix, start)) == expected

    @rule(data=st.data(), prefix=PREFIXES)
    def scan_and_change(self, data: st.DataObject, prefix: bytes) -> None:
        attempt = self.some(data)
        after = b""
        for key, value in attempt.shard.scan(prefix):
            there = [each for each in attempt.records if each.startswith(prefix) and each > after]
            assert (key, value) == (min(there), attempt.records[key])
            after = key
            changed = data.draw(KEYS)
            if data.draw(st.booleans()):
                attempt.shard.put(changed, b"new")
                attempt.records[changed] = b"new"
                attempt.changed = True
            else:
                attempt.changed |= attempt.shard.delete(changed)
                attempt.records.pop(changed, None)
        assert not [each for each in attempt.records if each.startswith(prefix) and each > after]

    @rule(data=st.data(), is_accepted=st.booleans(), is_full=st.booleans())
    def seal(self, data: st.DataObject, is_accepted: bool, is_full: bool) -> None:
        """End one attempt; if it is accepted, the others work for nothing from now on."""
        attempt = self.some(data)
        self.drawn += 1
        version = ShardVersion(self.epoch, self.drawn)
        self.deltas.is_full = is_full
        known = set(self.deltas.files)
        try:
            sealed = attempt.shard.seal(version)
        except ShardStorageError:
            assert is_full
            assert attempt.changed
            self.end(attempt)
            return
        self.end(attempt)
        if not attempt.changed:
            assert sealed != version
            assert set(self.deltas.files) == known
            return
        assert sealed == version
        if not attempt.shard._claim.is_private:
            self.copies = [self.copies[-1], (self.boots, version)]
        if is_accepted:
            self.head, self.at_head = version, attempt.records
            self.epoch += 1
            for other in self.attempts[:]:
                self.end(other)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), is_explicit=st.booleans())
    def abort(self, data: st.DataObject, is_explicit: bool) -> None:
        attempt = self.some(data)
        if is_explicit:
            attempt.shard.abort()
        self.end(attempt)

    def end(self, attempt: Attempt) -> None:
        attempt.shard.close()
        self.attempts.remove(attempt)

    @rule()
    def lose_local_copies(self) -> None:
        # With the locks, and under the feet of those who work on them.
        shutil.rmtree(self.local)
        self.local.mkdir()
        self.copies = []
        for attempt in self.attempts[:]:
            self.end(attempt)

    @precondition(lambda self: not self.attempts)
    @rule()
    def start_the_host_anew(self) -> None:
        self.boots += 1

    @invariant()
    def attempts_are_what_they_should_be(self) -> None:
        for attempt in self.attempts:
            assert dict(attempt.shard.scan(b"")) == attempt.records
            assert attempt.shard.changed == attempt.changed

    @invariant()
    def nothing_is_left_behind(self) -> None:
        folders = [each for each in self.local.iterdir() if each.is_dir()]
        assert len(folders) <= max(1, len(self.attempts) + 1)


TestShards = Shards.TestCase
TestShards.settings = settings(max_examples=examples(40), stateful_step_count=30)
