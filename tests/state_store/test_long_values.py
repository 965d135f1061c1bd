"""Values that a server of Redis would not take at once."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote import pieces
from beam_spark_runner.state.remote.key_store import KeyStore
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.pieces import PIECE_BYTES
from beam_spark_runner.state.remote.redis_namespaces import RedisNamespaces
from beam_spark_runner.state.store_keys import numbered
from tests.examples import examples
from tests.state_store.servers import RedisServer, redis_server
from tests.unit.state.pieced_values import EPOCHS, PREFIX, SMALL, content, run_epochs, shard_of
from tests.unit.state.test_keyed_shards import KEY_GROUPS, Files

KEY = PREFIX + numbered(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as here:
        yield here


def emptied(server: RedisServer) -> KeyStore:
    """Remove all that a server has, and return the groups of a stage in a claimed namespace."""
    server.client().flushall()
    address = StateStoreAddress(server.url)
    assert RedisNamespaces(address, "/folder", "", KEY_GROUPS).claim("n")
    return key_store(address, "n", 0)


@settings(max_examples=examples(40))
@given(EPOCHS)
def test_long_values_are_what_a_dict_would_have(
    server: RedisServer, epochs: Sequence[Mapping[int, int | None]]
) -> None:
    store = emptied(server)
    with TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "PIECE_BYTES", SMALL)
        run_epochs(store, Path(scratch), epochs, SMALL)


def test_a_value_of_megabytes_has_pieces(server: RedisServer, tmp_path: Path) -> None:
    store = emptied(server)
    size = 5 * PIECE_BYTES
    sizes = (size, size + 1, 2 * PIECE_BYTES, size, 10, size, None)
    run_epochs(store, tmp_path, [{1: each} for each in sizes], PIECE_BYTES)
    assert not server.client().keys("*:p")


def test_a_lost_piece_leads_to_a_rebuild(server: RedisServer, tmp_path: Path) -> None:
    client, files, value = server.client(), Files(), content(3 * PIECE_BYTES, 1)
    store = emptied(server)
    with shard_of(store, files, KeyedHead(), tmp_path) as shard:
        shard.records.put(KEY, value)
        head = shard.seal(ShardVersion(1, 1))
    with shard_of(store, files, head, tmp_path) as shard:
        (name,) = client.keys("*:p")
        first, *_ = client.hkeys(name)
        client.hdel(name, first)
        assert shard.records.get(KEY) == value
        assert shard.was_rebuilt


@pytest.mark.rare
def test_a_value_above_the_limit_of_redis_goes_through(server: RedisServer, tmp_path: Path) -> None:
    store = emptied(server)
    files, value = Files(), bytes(range(250)) * (600 << 12)
    with shard_of(store, files, KeyedHead(), tmp_path) as shard:
        shard.records.put(KEY, value)
        head = shard.seal(ShardVersion(1, 1))
    with shard_of(store, files, head, tmp_path) as shard:
        assert not shard.was_rebuilt
        assert shard.records.get(KEY) == value
