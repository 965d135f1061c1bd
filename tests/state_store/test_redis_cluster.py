"""Keys in a Redis Cluster whose slots move."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis.exceptions
from redis.crc import key_slot

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.recovery.heads import DeltaId
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import Change, Chunk, StateStoreError, Structure
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.redis_namespaces import RedisNamespaces
from beam_spark_runner.state_store import main
from tests.examples import examples
from tests.state_store.clusters import Cluster, redis_cluster
from tests.state_store.random_walks import walk_until
from tests.unit.state.test_keyed_shards import KEY_GROUPS, Walk, make_small

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as here:
        yield here


class ClusterWalk(Walk):
    """A random walk on a Cluster, whose nodes lose keys, and whose slots move."""

    def __init__(self, seed: int, scratch: Path, cluster: Cluster) -> None:
        super().__init__(seed, scratch)
        self._cluster = cluster
        for node in cluster.nodes:
            node.client().flushall()
        address = StateStoreAddress(cluster.url)
        self.store = key_store(address, "walk", 3)  # type: ignore[assignment]
        self._namespaces = RedisNamespaces(address, "/walk", "", KEY_GROUPS)
        self.claim()

    def claim(self) -> None:
        with contextlib.suppress(StateStoreError):  # a slot moves; the next step claims again
            assert self._namespaces.claim("walk")

    def _note_moment(self) -> None: ...

    def lose(self) -> None:
        self.random.choice(self._cluster.nodes).client().flushall()

    def harm(self) -> None:
        client = self.random.choice(self._cluster.nodes).client()
        keys: Any = client.keys("*")
        if keys:
            with contextlib.suppress(redis.exceptions.MovedError):  # another node has its slot now
                client.delete(self.random.choice(keys))

    def disconnect(self) -> None:
        """A slot begins to move, or has moved."""
        if self.random.random() < 0.5:
            self._cluster.finish_moving()
            self.seen["moved"] += 1
            return
        group = self.random.randrange(KEY_GROUPS)
        slot = key_slot(b"bsr:{walk.3.%d}" % group)
        nodes = range(len(self._cluster.nodes))
        self._cluster.begin_to_move(slot, self.random.choice(nodes), self.random.randrange(4))

    def recover(self) -> None:
        self._cluster.finish_moving()


def test_records_are_what_a_dict_would_be(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)

    def run(seed: int) -> "Counter[str]":
        walk = ClusterWalk(seed, tmp_path, cluster)
        try:
            walk.run(60)
        finally:
            cluster.finish_moving()
        return walk.seen

    wanted = frozenset({"write", "read", "seal", "resume", "lose", "harm", "moved"})
    walk_until(wanted, examples(20), run)


def test_a_chunk_is_whole_or_not_at_all_while_its_slot_moves(cluster: Cluster) -> None:
    store = key_store(StateStoreAddress(cluster.url), "half", 0)
    version = ShardVersion(1, 1)
    both = [Change(Structure.PACKS, b"key", b"pack"), Change(Structure.OUTLYING, b"name", b"value")]
    assert store.apply([Chunk(0, None, version, True, 0, True, both)]) == [True]
    base = b"bsr:{half.0.0}"
    to = (cluster.owner(base) + 1) % len(cluster.nodes)
    cluster.begin_to_move(key_slot(base), to, keys=1)
    later = ShardVersion(2, 2)
    changed = [
        Change(Structure.PACKS, b"key", b"later"),
        Change(Structure.OUTLYING, b"name", None),
        Change(Structure.EVENT, b"due", b""),
    ]
    with pytest.raises(StateStoreError, match="are moving to another node"):
        store.apply([Chunk(0, version, later, True, 0, True, changed)])
    cluster.finish_moving()
    (opened,) = store.open([0])
    assert opened.tag.complete == DeltaId(1, 1)
    assert opened.tag.is_whole
    assert store.apply([Chunk(0, version, later, True, 0, True, changed)]) == [True]
    (opened,) = store.open([0])
    assert opened.tag.complete == DeltaId(2, 2)
    assert opened.sizes[Structure.OUTLYING] == 0
    store.drop([0])


def test_namespaces_of_all_nodes_are_dropped(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in cluster.nodes:
        node.client().flushall()
    address, option = StateStoreAddress(cluster.url), f"--state_store={cluster.url}"
    namespaces = RedisNamespaces(address, "/folder", "clicks", 30)
    namespaces.check()
    assert namespaces.claim("aa")
    namespaces.note("aa", 7)
    change = Change(Structure.PACKS, b"key", b"pack")
    chunks = [Chunk(each, None, ShardVersion(7, 1), True, 0, True, [change]) for each in range(30)]
    assert all(key_store(address, "aa", 1).apply(chunks))
    assert all(node.client().keys("bsr:{aa.*") for node in cluster.nodes)
    assert main([option, "list"]) == 0
    assert capsys.readouterr().out == "aa  /folder after epoch 7, job clicks\n"
    assert main([option, "drop", "aa"]) == 0
    assert capsys.readouterr().out == "dropped 30 groups of keys\n"
    assert not any(node.client().keys("bsr:{aa.*") for node in cluster.nodes)


def test_a_socket_of_a_node_is_refused(cluster: Cluster) -> None:
    with pytest.raises(OptionsError, match="is a socket of a Redis Cluster"):
        key_store(StateStoreAddress(cluster.nodes[0].url), "n", 0)
