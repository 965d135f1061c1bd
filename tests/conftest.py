"""Fixtures for all tests. One JVM per process: whatever may, shares one session."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.connect_server import start_connect_server
from tests.examples import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Machines are shared and slow at times: no example fails for its time.
settings.register_profile(
    "shared",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(100),
)
settings.load_profile("shared")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options for tests of pipelines, which run in their own process otherwise."""
    parser.addoption(
        "--on-spark", action="store_true", help="run pipelines on Spark, not in-process"
    )
    parser.addoption(
        "--in-state-store",
        action="store_true",
        help="have the keys of streaming pipelines in a Redis server",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests begin first: none of them is left when the other process is done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Tests that build pipelines do it in half the time. Others need no Beam."""
    if "apache_beam" in sys.modules:
        from tests.beam_once import remember

        remember()


@pytest.fixture(scope="session")
def on_spark() -> "Iterator[SparkSession]":
    """A classic local[2] session, as a user would have one: our session settings are not in it."""
    from beam_spark_runner.spark.session.launch import start_classic

    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = start_classic("local[2]", "tests", conf)
    yield session
    session.stop()


@pytest.fixture(scope="session", autouse=True)
def in_state_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """With ``--in-state-store``, pipelines of this process have this option of the runner's."""
    if not request.config.getoption("--in-state-store"):
        yield
        return
    from beam_spark_runner.options import config, state_store_options
    from tests.state_store.servers import redis_server

    given = state_store_options.state_store
    folder = tmp_path_factory.mktemp("redis")
    with redis_server(folder) as server, pytest.MonkeyPatch.context() as m:
        m.setattr(config, "state_store", lambda url, file: given(url or server.url, file))
        yield


@pytest.fixture
def no_state_store_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of pipelines without a state store: ``--in-state-store`` is not for them."""
    from beam_spark_runner.options import config, state_store_options

    monkeypatch.setattr(config, "state_store", state_store_options.state_store)


@pytest.fixture(scope="session")
def spark_session(on_spark: "SparkSession") -> "SparkSession":
    """The same. In ``tests/pipelines`` it stands for this process."""
    return on_spark


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server with two slots."""
    log = tmp_path_factory.mktemp("connect") / "server.log"
    with start_connect_server(log) as url:
        yield url
