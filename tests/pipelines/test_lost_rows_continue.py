"""Stored rows of batch pipelines that are lost together with an executor."""

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from beam_spark_runner.in_process.cluster import InProcessCluster
from beam_spark_runner.spark.driver.cluster import SparkCluster
from tests.pipelines.recoverable import Job, groups_and_side_input


class ExecutorLost(Exception):
    """An executor was lost."""


@pytest.fixture
def cluster(spark_session: Any) -> type:
    """The class of the cluster on which the test's pipelines run."""
    return InProcessCluster if spark_session is None else SparkCluster


@pytest.mark.parametrize("at", [1, 2])
def test_rows_that_were_lost_with_an_executor_are_made_again(
    cluster: Any, spark_session: Any, tmp_path: Path, at: int
) -> None:
    job = Job(spark_session, tmp_path, groups_and_side_input)
    real_run, real_lost, runs = cluster.run, cluster.machines_were_lost, 0

    def run(self: Any, levels: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == at + 1:
            for rows in job.folder.glob("*/*.rows"):
                rows.unlink()
            raise ExecutorLost
        return real_run(self, levels)

    def machines_were_lost(self: Any, error: BaseException) -> bool:
        return isinstance(error, ExecutorLost) or real_lost(self, error)

    with (
        mock.patch.object(cluster, "run", run),
        mock.patch.object(cluster, "machines_were_lost", machines_were_lost),
    ):
        job.start()
    assert runs > at + 1
    sums = {x: sum(range(x, 40, 5)) for x in range(5)}
    assert job.lines() == sorted(f"{pair} {sum(sums.values())}" for pair in sums.items())
    assert job.names() == []
