"""Streaming pipelines whose state store loses data, goes away, or is another one."""

import logging
import platform
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.engine.task import keyed_shards
from beam_spark_runner.scheduling import patience
from beam_spark_runner.state.remote import key_stores
from tests.counting_streams import EPOCHS, pipeline
from tests.harvest import harvest
from tests.state_store.clusters import redis_cluster
from tests.state_store.servers import RedisServer, redis_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as here:
        yield here


@pytest.fixture(scope="module")
def expected(spark_session: Any) -> Any:
    return harvest(spark_session, pipeline(lambda: None, None))


def flush(server: RedisServer) -> None:
    server.client().flushall()


def restart_empty(server: RedisServer) -> None:
    server.kill()
    server.start()


def delete(pattern: str) -> Callable[[RedisServer], None]:
    def delete_keys(server: RedisServer) -> None:
        client = server.client()
        for key in client.scan_iter(pattern):
            client.delete(key)

    return delete_keys


HARMS = {
    "nothing": lambda server: None,
    "flushed": flush,
    "restarted without data": restart_empty,
    "outlying values deleted": delete("bsr:*:o"),
    "names deleted": delete("bsr:*:n"),
    "due times deleted": delete("bsr:*:e"),
    "holds deleted": delete("bsr:*:h"),
    "owners deleted": delete("bsr:owners"),
}


@pytest.mark.parametrize("at", [3, EPOCHS - 1])
@pytest.mark.parametrize("harm", HARMS)
def test_a_server_that_loses_data(
    harm: str, at: int, server: RedisServer, expected: Any, spark_session: Any, tmp_path: Path
) -> None:
    harmed = pipeline(lambda: HARMS[harm](server), at)
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={tmp_path / 'checkpoint'}")
    found = harvest(spark_session, harmed, *flags)
    for label in ("counts", "groups"):
        assert found[label] == expected[label]
    assert server.client().keys("*") == []


def test_a_server_that_is_away_for_some_time(
    server: RedisServer, expected: Any, spark_session: Any
) -> None:
    class Restarts(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "trying again" in record.getMessage():
                failed.append(record.getMessage())
                server.start()

    failed: list[str] = []
    handler, logger = Restarts(), logging.getLogger("beam_spark_runner")
    logger.addHandler(handler)
    try:
        found = harvest(spark_session, pipeline(server.kill, 3), f"--state_store={server.url}")
    finally:
        logger.removeHandler(handler)
    (warning,) = failed
    assert f"the state store at {server.url} cannot be read or written" in warning
    assert found["counts"] == expected["counts"]
    assert found["groups"] == expected["groups"]


def test_an_executor_that_joins_later_and_reaches_another_server(
    server: RedisServer,
    expected: Any,
    spark_session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It must not copy the keys there: each move of a task would copy them again."""
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={tmp_path / 'checkpoint'}")
    joined = tmp_path / "joined"
    elsewhere = tmp_path / "o"
    elsewhere.mkdir()
    with redis_server(elsewhere) as other:

        def key_store(address: StateStoreAddress, *names: Any) -> Any:
            return key_stores.key_store(
                StateStoreAddress(other.url) if joined.exists() else address, *names
            )

        monkeypatch.setattr(keyed_shards, "key_store", key_store)
        monkeypatch.setattr(patience, "_PATIENCE_S", 0)
        with pytest.raises(RuntimeError) as raised:
            harvest(spark_session, pipeline(joined.touch, 3), *flags)
        assert f"the state store at {other.url} cannot be read or written" in str(raised.value)
        assert f"the server that {platform.node()} reaches" in str(raised.value)
        assert other.client().keys("*") == []
    monkeypatch.undo()
    found = harvest(spark_session, pipeline(lambda: None, None), *flags)
    assert ("key 1", EPOCHS, -EPOCHS) in found["counts"]
    assert set(found["counts"]) <= set(expected["counts"])
    assert server.client().keys("*") == []


def test_a_cluster_whose_slots_move(tmp_path: Path, expected: Any, spark_session: Any) -> None:
    moved = tmp_path / "moved"
    with redis_cluster(tmp_path) as cluster:

        def move() -> None:
            """Move all slots with keys to the next node; one of them is half way for a second."""
            if moved.exists():
                return  # the epoch is repeated
            moved.touch()
            keys = {key for node in cluster.nodes for key in node.client().scan_iter("bsr:*")}
            *slots, last = {key_slot(key): cluster.owner(key) for key in keys}.items()
            for slot, owner in slots:
                cluster.move(slot, (owner + 1) % len(cluster.nodes))
            cluster.begin_to_move(last[0], (last[1] + 1) % len(cluster.nodes), keys=1)
            threading.Timer(1, cluster.finish_moving).start()

        found = harvest(spark_session, pipeline(move, 3), f"--state_store={cluster.url}")
        left = [key for node in cluster.nodes for key in node.client().keys("*")]
    assert moved.exists()
    for label in ("counts", "groups"):  # a repeated epoch may emit its elements again
        assert set(map(str, found[label])) == set(map(str, expected[label]))
    assert left == []
