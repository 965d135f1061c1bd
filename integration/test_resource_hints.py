"""Steps with resource hints, on clusters with and without dynamic allocation."""

import logging
from pathlib import Path

import apache_beam as beam
import pytest
from pyspark import TaskContext

from integration.cluster import QUICK, Cluster
from integration.running import run_spread

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

GROWS = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "1",  # of each resource profile: all find room
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.executor.cores": "1",
}


def _cores_of_tasks(cluster: Cluster, conf: dict[str, str], folder: Path, **hints: str) -> set[str]:
    """Run a step with hints and one without; return the cores of a task of each."""

    def cores() -> int:
        context = TaskContext.get()
        assert context is not None
        return context.cpus()

    def build(pipeline: beam.Pipeline) -> None:
        hinted = beam.Map(lambda _: cores()).with_resource_hints(**hints)
        cores_of_hinted = pipeline | beam.Create(range(9)) | beam.Reshuffle() | "hinted" >> hinted
        (
            cores_of_hinted
            | "spread" >> beam.Reshuffle()
            | "other" >> beam.Map(lambda of_hinted: f"{of_hinted} {cores()}")
            | beam.io.WriteToText(str(folder / "cores"))
        )

    with cluster.session("hints", {**QUICK, **conf}) as session:
        run_spread(session, build)
    return {line for file in folder.iterdir() for line in file.read_text().splitlines()}


def test_tasks_have_the_cores_that_hints_ask_for(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    found = _cores_of_tasks(cluster, {}, tmp_path, cpu_count="2", min_ram="4GB")
    assert found == {"2 1"}
    (warning,) = [record for record in caplog.messages if "resource hint" in record]
    assert warning.startswith("a resource hint of hinted has no effect: min_ram: ")


def test_executors_have_the_cores_that_hints_ask_for(cluster: Cluster, tmp_path: Path) -> None:
    found = _cores_of_tasks(cluster, GROWS, tmp_path, cpu_count="2", min_ram="500MB")
    assert found == {"2 1"}


def test_few_tasks_run_at_a_time_in_a_worker(cluster: Cluster, tmp_path: Path) -> None:
    found = _cores_of_tasks(cluster, {}, tmp_path, max_active_bundles_per_worker="1")
    assert found == {"2 1"}  # of three cores
