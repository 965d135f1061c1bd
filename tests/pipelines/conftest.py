"""Pipelines run in the tests' own process, unless ``--on-spark`` is given.

Those about Spark's tasks, workers or pages have the fixture ``on_spark``, and the mark ``spark``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.job.run import session_opening
from tests.harvest import knowing_partitions

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need no Spark: they run apart from those that do.

    They serve gRPC in their process, which then cannot start a JVM for sure, since that forks.
    """
    for item in items:
        if item.path.is_relative_to(HERE) and not item.get_closest_marker("spark"):
            item.add_marker("in_process")


@pytest.fixture(scope="session")
def spark_session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """No SparkSession: every pipeline of the test runs in this process."""
    if request.config.getoption("--on-spark"):
        yield request.getfixturevalue("on_spark")
        return

    def open_session(config: Any, given: Any) -> InProcessSession:
        return InProcessSession()

    with mock.patch.object(session_opening, "open_session", open_session), knowing_partitions():
        yield None
