"""A Spark Connect server in a separate process, from the pyspark package."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE_ROOT = Path(__file__).parents[1]
_SERVER = """
import sys
from pyspark.sql import SparkSession
SparkSession.builder.master("local[2]").config(map=dict(
    item.split("=", 1) for item in sys.argv[1:])).getOrCreate()
print("ready", flush=True)
sys.stdin.read()  # until the test process ends, however it ends
"""
_NO_INDEX = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}
"""Whoever asks for a package index in a worker gets no answer, and gets that at once."""


@contextlib.contextmanager
def start_connect_server(
    log: Path,
    *,
    python: str = sys.executable,
    has_this_package: bool = True,
    conf: Mapping[str, str] | None = None,
    package: str | None = None,
) -> Iterator[str]:
    """Start a server with two slots, and yield its URL.

    Args:
        log: file for what it writes.
        python: its interpreter, and that of its workers; it has pyspark.
        has_this_package: whether they can import the runner.
        conf: further settings.
        package: of the server, from Maven, where pyspark has none.
    """
    import pyspark

    if package is None and not list(Path(pyspark.__file__).parent.glob("jars/spark-connect_*.jar")):
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
        # Files are a session's own.
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        **(conf or {}),
    }
    if package is not None:
        others = settings.get("spark.jars.packages")
        settings["spark.jars.packages"] = f"{others},{package}" if others else package
    path = {"PYTHONPATH": str(PACKAGE_ROOT)} if has_this_package else {}
    others = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with log.open("w") as stderr:
        server = subprocess.Popen(
            [python, "-c", _SERVER, *(f"{key}={value}" for key, value in settings.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**others, **path, "PYSPARK_PYTHON": python, **_NO_INDEX},
        )
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        # Ivy, which gets packages, prints there, too.
        if not any(line.strip() == b"ready" for line in server.stdout):
            pytest.fail(f"the Spark Connect server did not start:\n{log.read_text()}")
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.stdin.close()
        deadline = time.monotonic() + 30
        while server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        server.kill()
        server.wait()
