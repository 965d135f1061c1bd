"""The keys of one partition in a state store, and in a shard on the local disk."""

import argparse
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis

from beam_spark_runner.core.routing import KEY_GROUPS
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.recovery.sweep import keyed_delta_name
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Bag, Cell, StoredTimer
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.remote.redis_namespaces import RedisNamespaces
from beam_spark_runner.state.shards import open_shard
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.storage.mounted_folder import MountedFolder
from benchmarks.state_store.rounds import server_cpu_s

_AT_ONCE = 1_000  # keys that are read together
_LOADED = 50_000  # keys of an epoch, at first
_VALUE_BYTES = 100
_NUMBER = 1  # of the store, and of the stage
_STEP = "step"
_DUE_US = 10**12


class _Kept(NamedTuple):
    """The state of a partition at work, and what stores it."""

    state: StoredState
    shard: Any


class Partition:
    """A partition whose epochs run one after another: all of its keys have a value and a timer.

    Args:
        folder: For deltas and local copies.
        address: That of the store. None: keys are on the local disk.
    """

    def __init__(self, folder: Path, address: StateStoreAddress | None) -> None:
        self._address, self.local = address, folder / "local"
        deltas = folder / "deltas"
        deltas.mkdir(parents=True)
        self._deltas = MountedFolder(str(deltas))
        if address is not None:
            RedisNamespaces(address, str(deltas), "", KEY_GROUPS).claim("benchmark")
        self._head: ShardVersion | None = None
        self._keyed_head = KeyedHead()
        self._number = 0
        self._chance = random.Random(1)

    def load(self, count: int) -> list[bytes]:
        """Store keys, with values and timers; return them."""
        keys = [self._chance.randbytes(12) for _ in range(count)]
        for start in range(0, count, _LOADED):
            self.run(keys[start : start + _LOADED])
        return keys

    def run(self, keys: list[bytes], *, moves_timers: bool = False) -> None:
        """Run an epoch that changes values, and timers if these are to be moved."""
        self._number += 1
        with self.opened() as (state, shard):
            for start in range(0, len(keys), _AT_ONCE):
                some = keys[start : start + _AT_ONCE]
                state.ask(some)
                for key in some:
                    value = Bag(Cell(_STEP, "value", b"", key))
                    state.whole(value)
                    state.replace(value, self._chance.randbytes(_VALUE_BYTES))
                    state.timers(_STEP, key)
                    due = _DUE_US + self._number * moves_timers
                    timer = StoredTimer("due", "", b"", Domain.EVENT_TIME, due, due, b"")
                    state.set_timers(_STEP, key, [timer])
            version = ShardVersion(self._number, self._number)
            if self._address is None:
                self._head = shard.seal(version)
            else:
                self._keyed_head = shard.seal(version)

    def first_read(self, keys: list[bytes]) -> float:
        """Return the seconds until the first key of a block has been read."""
        began = time.monotonic()
        with self.opened() as (state, _):
            state.ask(keys[:_AT_ONCE])
            if not state.whole(Bag(Cell(_STEP, "value", b"", keys[0]))):
                raise SystemExit("a key is missing")
            return time.monotonic() - began

    @contextmanager
    def opened(self) -> Iterator[_Kept]:
        """Open the partition at the last epoch."""
        if self._address is None:
            with open_shard(
                *(self.local, self._deltas),
                lineage="job",
                level=0,
                partition=0,
                head=self._head,
            ) as shard:
                yield _Kept(StoredState(shard, _NUMBER, lambda cell, data: 1), shard)
            return
        store = key_store(self._address, "benchmark", _NUMBER)
        deltas = KeyedDeltas(self._deltas, _name_of, 0, self._keyed_head)
        groups = range(KEY_GROUPS)
        with KeyedShard(store, groups, KEY_GROUPS, deltas, self.local) as keyed:
            records = keyed.records
            state = StoredState(records, 0, lambda cell, data: 1, lists_holds=True, ask=records.ask)
            yield _Kept(state, keyed)


def _name_of(partition: int, version: ShardVersion) -> str:
    return keyed_delta_name("job", _NUMBER, partition, *version)


def keys(port: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure the CPU times of changes."""
    client = redis.Redis(port=port)
    count = arguments.keys
    for what, address in (("local disk", None), ("store", _address(port))):
        partition = Partition(folder / what, address)
        all_ = sorted(partition.load(count))
        for moves_timers, changed in ((False, "values"), (True, "values and timers")):
            partition.run(all_, moves_timers=moves_timers)
            before = time.process_time(), server_cpu_s(client)
            partition.run(all_, moves_timers=moves_timers)
            after = time.process_time(), server_cpu_s(client)
            ours, its = (1e6 * (b - a) / count for a, b in zip(before, after, strict=True))
            print(f"{what}, {changed} change: {ours:.1f} us of CPU here, {its:.1f} in the server")


def hosts(port: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure the first read of a task on another host."""
    for what, address in (("local disk", None), ("store", _address(port))):
        partition = Partition(folder / what, address)
        all_ = sorted(partition.load(arguments.stored))
        partition.run(sorted(random.Random(2).sample(all_, 10_000)))
        times = []
        for _ in range(3):
            shutil.rmtree(partition.local, ignore_errors=True)
            times.append(partition.first_read(all_))
        first, *others = times
        print(f"{what}: {first:.2f} s; again: {', '.join(f'{each:.2f} s' for each in others)}")


def memory(port: int, folder: Path, arguments: argparse.Namespace) -> None:
    """Measure the server's memory."""
    client = redis.Redis(port=port)
    before = _used(client)
    partition = Partition(folder / "store", _address(port))
    partition.load(arguments.stored)
    with partition.opened():
        pass  # the changes of the last epoch are in the store now
    used = (_used(client) - before) / arguments.stored
    few = 10_000
    local = Partition(folder / "local disk", None)
    local.load(few)
    with local.opened() as (_, shard):
        records = sum(len(key) + len(value) for key, value in shard.scan(b"")) / few
    print(
        f"{used:.0f} bytes of the server's memory for each key, whose records have {records:.0f}: "
        f"{used - records:.0f} more"
    )


def _used(client: redis.Redis) -> int:
    info: Any = client.info("memory")
    return int(info["used_memory"])


def _address(port: int) -> StateStoreAddress:
    return StateStoreAddress(f"redis://127.0.0.1:{port}")
