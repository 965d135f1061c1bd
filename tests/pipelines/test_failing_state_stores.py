"""Streaming pipelines whose state store loses data, goes away, or is another one."""

import contextlib
import logging
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from beam_spark_runner.core.store_address import StateStoreAddress
from beam_spark_runner.engine.task import keyed_shards
from beam_spark_runner.scheduling import patience
from beam_spark_runner.state.remote import key_stores
from tests.counting_streams import EPOCHS, passing, pipeline
from tests.harness.processes import lasting_port
from tests.harvest import harvest
from tests.state_store.clusters import redis_cluster
from tests.state_store.holding_proxy import holding_proxy
from tests.state_store.replicas import replicated_server
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


def check(found: Any, expected: Any) -> None:
    """Check what a pipeline has emitted; a repeated epoch may have emitted its elements again."""
    for label in ("counts", "groups"):
        assert set(map(str, found[label])) == set(map(str, expected[label]))


def fill(server: RedisServer) -> None:
    server.client().config_set("maxmemory", "1mb")


def hide(server: RedisServer) -> None:
    """Have the network fail: nobody reaches the server, which keeps its data."""
    os.rename(socket_of(server), f"{socket_of(server)}-hidden")
    redis.Redis(unix_socket_path=f"{socket_of(server)}-hidden").client_kill_filter(_type="normal")


def socket_of(server: RedisServer) -> str:
    return server.url.removeprefix("unix://")


FAILURES: dict[
    str, tuple[Callable[[RedisServer], object], Callable[[RedisServer], object], str]
] = {
    "killed": (RedisServer.kill, RedisServer.start, ""),
    "memory full": (
        fill,
        lambda server: server.client().config_set("maxmemory", "0"),
        "command not allowed when used memory > 'maxmemory'",
    ),
    "not reachable": (
        hide,
        lambda server: os.rename(f"{socket_of(server)}-hidden", socket_of(server)),
        "",
    ),
}


@contextlib.contextmanager
def warned(then: Callable[[], object]) -> Iterator[list[str]]:
    """Collect warnings that an epoch is repeated, and do something once after the first one."""

    class Repairs(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "trying again" in record.getMessage():
                warnings.append(record.getMessage())
                if len(warnings) == 1:
                    then()

    warnings: list[str] = []
    handler, logger = Repairs(), logging.getLogger("beam_spark_runner")
    logger.addHandler(handler)
    try:
        yield warnings
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("failure", FAILURES)
def test_a_server_that_does_not_work_for_some_time(
    failure: str, server: RedisServer, expected: Any, spark_session: Any
) -> None:
    fail, repair, problem = FAILURES[failure]
    with warned(lambda: repair(server)) as warnings:
        found = harvest(
            spark_session, pipeline(lambda: fail(server), 3), f"--state_store={server.url}"
        )
    assert f"the state store at {server.url} cannot be read or written" in warnings[0]
    assert problem in warnings[0]
    check(found, expected)
    assert server.client().keys("*") == []


@pytest.mark.parametrize("failure", FAILURES)
def test_a_server_that_does_not_work_any_more(
    failure: str,
    server: RedisServer,
    expected: Any,
    spark_session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error names the store, and the same command continues once it works again."""
    fail, repair, problem = FAILURES[failure]
    flags = (f"--state_store={server.url}", f"--checkpoint_dir={tmp_path / 'checkpoint'}")
    monkeypatch.setattr(patience, "_PATIENCE_S", 0)
    with pytest.raises(RuntimeError, match=f"the state store at {server.url}.*{problem}"):
        harvest(spark_session, pipeline(lambda: fail(server), 3), *flags)
    monkeypatch.undo()
    repair(server)
    found = harvest(spark_session, pipeline(lambda: None, None), *flags)
    assert ("key 1", EPOCHS, -EPOCHS) in found["counts"]
    assert set(found["counts"]) < set(expected["counts"])
    assert server.client().keys("*") == []


@pytest.mark.rare
def test_a_network_that_passes_nothing_for_a_minute(
    expected: Any, spark_session: Any, tmp_path: Path
) -> None:
    """What was held arrives later, also what the runner has given up; it changes nothing."""
    port, held = lasting_port(), tmp_path / "held"

    def pass_again() -> None:
        threading.Timer(60 - (time.time() - held.stat().st_mtime), held.unlink).start()

    with (
        redis_server(tmp_path, "--port", str(port)) as server,
        holding_proxy(port, held) as proxy,
        warned(pass_again) as warnings,
    ):
        url = f"redis://127.0.0.1:{proxy}"
        found = harvest(spark_session, pipeline(held.touch, 3), f"--state_store={url}")
        assert not held.exists()
        assert server.client().keys("*") == []
    assert f"the state store at {url} cannot be read or written" in warnings[0]
    check(found, expected)


def test_a_replica_that_lags_is_promoted(expected: Any, spark_session: Any, tmp_path: Path) -> None:
    lagging, promoted = tmp_path / "lagging", tmp_path / "promoted"
    with replicated_server(tmp_path) as servers:

        def lag_or_promote(pair: tuple[str, int]) -> tuple[str, int]:
            if pair[1] == 2 and not lagging.exists():
                lagging.touch()
                servers.lag()
            if pair[1] == 4 and not promoted.exists():
                promoted.touch()
                assert servers.promote() > 0
            return pair

        found = harvest(spark_session, passing(lag_or_promote), f"--state_store={servers.url}")
        assert promoted.exists()
        assert servers.client().keys("*") == []
    check(found, expected)


def test_an_executor_that_joins_later_and_reaches_another_server(
    server: RedisServer,
    expected: Any,
    spark_session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """It must not copy the keys there: each move of a task would copy them again."""
    if request.config.getoption("--on-spark"):
        pytest.skip("tasks in this process reach what the test chooses")
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
    check(found, expected)
    assert left == []
