"""Fixtures for all tests. One JVM per process: whatever may, shares one session."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Machines are shared and slow at times: no example fails for its time.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

_SERVER = """
import sys
from pyspark.sql import SparkSession
SparkSession.builder.master("local[2]").config(map=dict(
    item.split("=", 1) for item in sys.argv[1:])).getOrCreate()
print("ready", flush=True)
sys.stdin.read()  # until the test process ends, however it ends
"""


@pytest.fixture(scope="session")
def spark_session() -> "Iterator[SparkSession]":
    """A classic local[2] session, as a user would have one: our session settings are not in it."""
    from beam_spark_runner.spark.launch import start_classic

    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    session = start_classic("local[2]", "tests", conf)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Spark Connect server with two slots."""
    import pyspark

    if not list(Path(pyspark.__file__).parent.glob("jars/spark-connect_*.jar")):
        pytest.skip("this pyspark ships no Spark Connect server (3.5 does not)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.executorEnv.PYTHONPATH": Path(__file__).parents[1],
    }
    log = tmp_path_factory.mktemp("connect") / "server.log"
    with log.open("w") as stderr:
        server = subprocess.Popen(
            [sys.executable, "-c", _SERVER, *(f"{key}={value}" for key, value in settings.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        if server.stdout.readline().strip() != b"ready":
            pytest.fail(f"the Spark Connect server did not start:\n{log.read_text()}")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.stdin.close()
        deadline = time.monotonic() + 30
        while server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        server.kill()
        server.wait()
