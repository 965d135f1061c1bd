"""Keyed shards on a real server that restarts from its log, and on one whose replica takes over."""

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from typing_extensions import override

from beam_spark_runner.state.remote.key_store import StateStoreError
from tests.examples import examples
from tests.state_store.random_walks import walk_until
from tests.state_store.replicas import ReplicatedServer, replicated_server
from tests.state_store.servers import RedisServer, redis_server
from tests.state_store.test_redis_store import RedisWalk
from tests.unit.state.test_keyed_shards import make_small

pytestmark = pytest.mark.slow

_PERSISTENT = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")


class LoggedWalk(RedisWalk):
    """A random walk on a server that is killed, and whose log is cut at any byte."""

    def __init__(self, seed: int, scratch: Path, server: RedisServer, folder: Path) -> None:
        self._folder = folder
        super().__init__(seed, scratch, server)

    @override
    def disconnect(self) -> None:
        self._server.kill()
        if self.random.random() < 0.8:
            (log,) = self._folder.glob("appendonlydir/*.incr.aof")
            size = log.stat().st_size
            with log.open("rb+") as file:
                file.truncate(size - self.random.randrange(min(size, 20_000) + 1))
            self.seen["cut"] += 1
        self._server.start()


def run_walks(
    folder: Path,
    run: Callable[[int, Path, Path], Counter[str]],
    event: str,
) -> None:
    """Run walks with random seeds, until there are enough and something has happened in one.

    Args:
        folder: Gets a folder of the server, and one of local files, for each walk.
        run: Runs a walk, with its seed and these folders; returns what has happened in it.
        event: What has to happen.
    """

    def run_in_folders(seed: int) -> "Counter[str]":
        of_server, scratch = folder / str(seed), folder / f"{seed}s"
        of_server.mkdir()
        scratch.mkdir()
        seen = run(seed, of_server, scratch)
        assert not list(scratch.iterdir())
        return seen

    wanted = frozenset({"write", "read", "seal", "resume", event})
    walk_until(wanted, examples(20), run_in_folders)


def test_a_log_that_is_cut_at_any_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int, folder: Path, scratch: Path) -> Counter[str]:
        with redis_server(folder, *_PERSISTENT) as server:
            walk = LoggedWalk(seed, scratch, server, folder)
            walk.run(80)
        return walk.seen

    make_small(monkeypatch)
    run_walks(tmp_path, run, "cut")


class ReplicatedWalk(RedisWalk):
    """A random walk on a server whose replica lags, and takes its place in the middle of it."""

    def __init__(self, seed: int, scratch: Path, servers: ReplicatedServer) -> None:
        self._servers = servers
        super().__init__(seed, scratch, servers.primary)
        self._is_promoted = False

    @override
    def claim(self) -> None:
        # A connection to the server that was killed breaks when it is used next.
        with contextlib.suppress(StateStoreError):
            super().claim()
            return
        super().claim()

    @override
    def lose(self) -> None:
        if not self._servers.held.exists() and not self._is_promoted:
            self._servers.lag()

    @override
    def disconnect(self) -> None:
        if self._servers.held.exists() and not self._is_promoted:
            self._is_promoted = True
            self.seen["promoted"] += self._servers.promote() > 0
            self._client = self._servers.client()

    @override
    def harm(self) -> None: ...


def test_a_replica_that_lags_is_promoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int, folder: Path, scratch: Path) -> Counter[str]:
        with replicated_server(folder) as servers:
            walk = ReplicatedWalk(seed, scratch, servers)
            walk.run(100)
        return walk.seen

    make_small(monkeypatch)
    run_walks(tmp_path, run, "promoted")
