"""Full-window partitions on a standalone cluster: they outlast executors, and sorts leave no file.

An executor that dies takes along what it has materialised, and what its tasks were doing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.runner import SparkPortableRunner
from integration.cluster import CHECKSUMS, QUICK, SLOTS, Cluster, wait_for_executors
from integration.open_files import nameless_files
from integration.partition_pipelines import (
    PLACES,
    SMALL_SORTS,
    read_partitions,
    sort_and_wait,
    waiting,
)
from integration.pipelines import counters
from integration.running import run
from integration.strikes import kill
from integration.waiting import wait_until
from tests.harvest import PROCESS
from tests.spark.test_full_window_tasks import ADAPTIVE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

COUNT = 1800
FLAGS = (f"--parallelism={SLOTS}", SMALL_SORTS)
IN_HARNESSES = pytest.mark.parametrize("harness", [(), PROCESS], ids=["embedded", "process"])


@pytest.fixture(scope="module")
def temporary(cluster: Cluster) -> Path:
    """Where user code on executors has its temporary files."""
    folder = cluster.folder / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def session(cluster: Cluster, temporary: Path) -> Iterator[Any]:
    with cluster.session("partitions", {**QUICK, "spark.executorEnv.TMPDIR": str(temporary)}) as it:
        yield it


def check(session: Any, *flags: str, **arguments: Any) -> None:
    wait_for_executors(session)  # else one makes all rows, and another is killed
    result = run(session, lambda p: read_partitions(p, COUNT, SLOTS, **arguments), *FLAGS, *flags)
    assert counters(result) == {"checked": 1}


@pytest.mark.parametrize("storage", ["executors", "shared storage"])
@pytest.mark.parametrize("place", PLACES)
def test_partitions_stay_when_an_executor_dies(
    session: Any, tmp_path: Path, place: str, storage: str
) -> None:
    """Without Spark's checksums, which would have it run readers again that have ended."""
    marker = tmp_path / "killed"
    flags = [f"--spark_conf={key}=false" for key in CHECKSUMS]
    if storage == "shared storage":
        flags.append(f"--temp_location={tmp_path}")
    check(session, *flags, markers={place: str(marker)})
    assert marker.exists()


@pytest.mark.parametrize("place", ["map", "sort", "later"])
def test_partitions_stay_when_an_executor_dies_with_its_sdk_harnesses(
    session: Any, tmp_path: Path, place: str
) -> None:
    marker = tmp_path / "killed"
    check(session, *PROCESS, markers={place: str(marker)})
    assert marker.exists()


@IN_HARNESSES
def test_partitions_stay_when_a_function_is_tried_again(
    session: Any, tmp_path: Path, harness: tuple[str, ...]
) -> None:
    marker = tmp_path / "failed"
    check(session, *harness, fails_once=str(marker))
    assert marker.exists()


def test_adaptive_execution_changes_no_partition(session: Any, tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    check(session, *ADAPTIVE, markers={"map": str(marker)})
    assert marker.exists()


@IN_HARNESSES
@pytest.mark.parametrize("end", ["executor killed", "cancelled", "failed"])
def test_the_files_of_a_sort_are_gone(
    session: Any, tmp_path: Path, temporary: Path, harness: tuple[str, ...], end: str
) -> None:
    wait_for_executors(session)
    wait_until(lambda: not nameless_files(temporary), "the end of earlier sorts")
    runner, flags = SparkPortableRunner(session), [*FLAGS, *harness]
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(flags))
    sort_and_wait(pipeline, 6000, str(tmp_path))
    result = pipeline.run()
    wait_until(
        lambda: len(waiting(tmp_path)) == SLOTS or PipelineState.is_terminal(result.state),
        "all tasks",
    )
    tasks = waiting(tmp_path)
    assert len(tasks) == SLOTS
    sizes = nameless_files(temporary)
    assert {process for _, process in tasks} == sizes.keys()
    assert min(sizes.values()) > 4096  # all of them have sorted in files
    if end == "cancelled":
        assert result.cancel() == PipelineState.CANCELLED
    elif end == "failed":
        (tmp_path / "go").write_text("no more")
        with pytest.raises(BundleFailedError, match="no more"):
            result.wait_until_finish(300_000)
    else:
        victim, _ = tasks[0]
        kill(victim)
        gone = {process for executor, process in tasks if executor == victim}
        wait_until(lambda: gone.isdisjoint(nameless_files(temporary)), "processes without executor")
        (tmp_path / "go").touch()
        assert result.wait_until_finish(300_000) == PipelineState.DONE
        assert counters(result) == {"sorted": 6000}
    wait_until(lambda: not nameless_files(temporary), "the end of all sorts")
    assert not [*temporary.rglob("beam-sort*")]
