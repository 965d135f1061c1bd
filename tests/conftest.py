"""Fixtures for all tests. One JVM per process: everything that may shares one session."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from beam_spark_runner.options import RunnerConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pytest_configure() -> None:
    # Spark's Python workers must not be told apart from us by a conftest on the path.
    sys.dont_write_bytecode = True


@pytest.fixture(scope="session")
def spark_session() -> "Iterator[SparkSession]":
    """A classic local[2] session, as a user would have one: the runner did not set it up."""
    from beam_spark_runner.spark.launch import start_classic

    conf = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    session = start_classic("local[2]", "tests", conf)
    yield session
    session.stop()


@pytest.fixture
def default_config() -> RunnerConfig:
    return RunnerConfig()
