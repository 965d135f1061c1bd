"""Keyed shards on a real server are what they are on the simulated one."""

import platform
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.recovery.copies import GroupTag
from beam_spark_runner.recovery.heads import DeltaId
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import (
    Change,
    Chunk,
    Names,
    Packs,
    Read,
    StateStoreError,
    Structure,
)
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.redis_namespaces import RedisNamespaces
from tests.examples import examples
from tests.state_store.random_walks import walk_until
from tests.state_store.servers import RedisServer, redis_server
from tests.unit.state.test_keyed_shards import KEY_GROUPS, Walk, make_small

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as here:
        yield here


class RedisWalk(Walk):
    """A random walk on a server, which may be set back, harmed and killed."""

    def __init__(self, seed: int, scratch: Path, server: RedisServer) -> None:
        super().__init__(seed, scratch)
        self._server, self._client = server, server.client()
        self._client.flushall()
        address = StateStoreAddress(server.url)
        self.store = key_store(address, "walk", 3)  # type: ignore[assignment]
        self._namespaces = RedisNamespaces(address, "/walk", "", KEY_GROUPS)
        self.claim()
        self._dumps = [self._dump()]

    def claim(self) -> None:
        assert self._namespaces.claim("walk")

    def _dump(self) -> dict[bytes, Any]:
        keys: Any = self._client.keys("*")
        return {key: self._client.dump(key) for key in keys}

    def _note_moment(self) -> None:
        self._dumps = [*self._dumps, self._dump()][-6:]

    def lose(self) -> None:
        dump = self.random.choice(self._dumps)
        for group in range(KEY_GROUPS):
            if self.random.random() < 0.7:
                there = self._client.keys(f"bsr:{{walk.3.{group}}}*")
                if there:
                    self._client.delete(*there)
                for key, value in dump.items():
                    if key.startswith(f"bsr:{{walk.3.{group}}}".encode()):
                        self._client.restore(key, 0, value)

    def harm(self) -> None:
        keys = self._client.keys("*")
        if keys and self.random.random() < 0.8:
            self._client.delete(self.random.choice(keys))
        else:
            self._client.flushall()

    def disconnect(self) -> None:
        self._server.kill()
        if self.random.random() < 0.5:
            with pytest.raises(StateStoreError):
                self.store.open([0])
        self._server.start()

    def recover(self) -> None: ...


@pytest.mark.parametrize("part", range(2))
def test_records_are_what_a_dict_would_be(
    part: int, server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)

    def run(seed: int) -> "Counter[str]":
        walk = RedisWalk(seed, tmp_path, server)
        walk.run(60)
        return walk.seen

    wanted = frozenset({"write", "read", "seal", "resume", "lose", "harm", "disconnect"})
    walk_until(wanted, examples(40), run)
    assert not list(tmp_path.iterdir())


def test_new_content_of_which_a_part_is_lost_is_not_installed(
    server: RedisServer, tmp_path: Path
) -> None:
    server.client().flushall()
    store = key_store(StateStoreAddress(server.url), "n", 0)
    version = ShardVersion(3, 33)
    new = store.install(1, version)
    for number in range(2):
        new.add([Change(Structure.PACKS, b"key %d" % number, b"pack")])
    server.kill()
    server.start()  # the client connects again, without an error
    with pytest.raises(StateStoreError, match="it has lost what was just written to it"):
        new.add([Change(Structure.PACKS, b"key 2", b"pack")])
    with pytest.raises(StateStoreError, match="it has lost what was just written to it"):
        new.finish()
    new.abandon()
    assert server.client().keys("*") == []
    empty = store.install(1, version)
    empty.finish()
    (opened,) = store.open([1])
    assert opened.tag == GroupTag(DeltaId(3, 33))
    assert not any(opened.sizes.values())


def test_scripts_that_the_server_has_forgotten_are_loaded_again(server: RedisServer) -> None:
    """So they are after a restart of the server, which the client does not notice."""
    server.client().flushall()
    store = key_store(StateStoreAddress(server.url), "n", 0)
    assert len(store.open(range(200))) == 200
    server.client().script_flush()
    assert len(store.open(range(200))) == 200
    server.client().script_flush()
    version = ShardVersion(1, 1)
    change = Change(Structure.PACKS, b"key", b"pack")
    chunks = [
        Chunk(group, None, version, True, 0, True, [change] if group else []) for group in range(3)
    ]
    assert store.apply(chunks) == [True] * 3
    reads: list[Read] = [Packs(1, [b"key"]), Names(1, Structure.OUTLYING, b"", b"", 10)]
    server.client().script_flush()
    packs, names = store.read(reads)
    assert (packs.values, names.values) == ([b"pack"], [])


def test_another_server_is_named_with_the_host_that_reaches_it(
    server: RedisServer, tmp_path: Path
) -> None:
    server.client().flushall()
    address = StateStoreAddress(server.url)
    namespaces = RedisNamespaces(address, "/folder", "", KEY_GROUPS)
    assert namespaces.claim("known")
    key_store(address, "known", 0).check_known()
    with redis_server(tmp_path) as other:
        there = StateStoreAddress(other.url)
        with pytest.raises(StateStoreError) as raised:
            key_store(there, "known", 0).check_known()
        assert f"the state store at {other.url}" in str(raised.value)
        assert f"the server that {platform.node()} reaches does not know" in str(raised.value)
    namespaces.forget("known")
    with pytest.raises(StateStoreError, match="does not know the namespace known"):
        key_store(address, "known", 0).check_known()


def test_a_password_is_read_from_a_file(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    with redis_server(tmp_path, "--requirepass", "secret") as server:
        address = StateStoreAddress(server.url, str(password))
        (opened,) = key_store(address, "n", 0).open([5])
        assert not any(opened.sizes.values())
        with pytest.raises(StateStoreError, match=r"(?i)auth"):
            key_store(StateStoreAddress(server.url), "n", 0).open([5])


def test_a_full_server_is_an_error(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--maxmemory", "3mb") as server:
        new = key_store(StateStoreAddress(server.url), "n", 0).install(1, None)

        def fill() -> None:
            for number in range(1_000):
                new.add([Change(Structure.PACKS, b"key %d" % number, bytes(100_000))])

        with pytest.raises(StateStoreError, match="maxmemory"):
            fill()
