"""Spark tables on a standalone cluster: every mode, failures, and executors that die meanwhile."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.transforms import FullWindowPartition, ReadFromSpark
from integration.cluster import QUICK, Cluster, wait_for_executors
from integration.partition_pipelines import Listed
from integration.pipelines import Counted, KillsItsExecutor, counters
from integration.table_pipelines import (
    COUNT,
    Target,
    check_failed_append,
    check_failures,
    check_killed,
    check_modes,
)
from tests.harvest import PROCESS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

STORAGES = pytest.mark.parametrize("storage", ["executors", "shared storage"])


@pytest.fixture(scope="module")
def session(cluster: Cluster) -> Iterator[Any]:
    conf = {**QUICK, "spark.sql.warehouse.dir": str(cluster.folder / "warehouse")}
    with cluster.session("tables", conf) as it:
        yield it


def files(session: Any, folder: Path, *flags: str, format_: str = "parquet") -> Target:
    """Return files that are not there yet."""
    path = str(folder / "out")
    return Target(
        session,
        {"path": path, "format": format_},
        lambda: session.read.format(format_).load(path),
        flags,
    )


def flags_of(storage: str, folder: Path) -> tuple[str, ...]:
    return (f"--temp_location={folder}/temp",) if storage == "shared storage" else ()


@STORAGES
@pytest.mark.parametrize("harness", [(), PROCESS], ids=["embedded", "process"])
def test_files(session: Any, tmp_path: Path, storage: str, harness: tuple[str, ...]) -> None:
    target = files(session, tmp_path, *flags_of(storage, tmp_path), *harness)
    check_modes(target, partition_by="part")
    assert {path.name for path in (tmp_path / "out").glob("part=*")} == {"part=0", "part=2"}
    check_failures(target)


def test_a_table_of_the_catalog(session: Any) -> None:
    session.sql("DROP TABLE IF EXISTS numbers")
    target = Target(session, {"table": "numbers"}, lambda: session.table("numbers"))
    check_modes(target, format="orc")
    check_failures(target)


def test_an_append_of_which_a_row_does_not_fit(session: Any, tmp_path: Path) -> None:
    target = files(session, tmp_path)
    target.write(range(5))
    check_failed_append(target)
    target.write([5], mode="append")
    assert target.ids() == [*range(6)]


@STORAGES
@pytest.mark.parametrize("mode", ["error", "ignore", "append", "overwrite"])
def test_an_executor_dies_in_the_middle_of_a_write(
    cluster: Cluster,
    session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mode: str,
    storage: str,
) -> None:
    """What it had materialised is gone with it, unless that is in shared storage."""
    caplog.set_level(logging.WARNING)
    target = files(session, tmp_path, *flags_of(storage, tmp_path))
    if mode in ("append", "overwrite"):
        target.write(range(5))
    wait_for_executors(session)
    check_killed(target, tmp_path / "out", mode, cluster.kill_executor)
    again = [text for text in caplog.messages if "again" in text]
    assert bool(again) == (storage == "executors"), again


@STORAGES
@pytest.mark.parametrize("nth", [0, 20], ids=["before it reads", "in the middle"])
def test_an_executor_dies_while_a_table_is_read(
    session: Any, tmp_path: Path, nth: int, storage: str
) -> None:
    session.range(COUNT).repartition(6).write.parquet(str(tmp_path / "in"))
    marker = tmp_path / "killed"
    wait_for_executors(session)

    def build(p: beam.Pipeline) -> None:
        rows = p | ReadFromSpark(path=str(tmp_path / "in"))
        ids = rows | beam.ParDo(KillsItsExecutor(str(marker), nth)) | beam.Map(lambda row: row.id)
        _ = ids | beam.ParDo(Counted("read"))
        listed = ids | beam.combiners.ToList()
        _ = listed | beam.Map(_check_all) | "Checked" >> beam.ParDo(Counted("checked"))

    result = files(session, tmp_path, *flags_of(storage, tmp_path)).run(build)
    assert marker.exists()
    assert counters(result) == {"read": COUNT, "checked": 1}


def _check_all(ids: list[int]) -> None:
    if sorted(ids) != [*range(COUNT)]:
        raise ValueError(f"{len(ids)} ids, {len(set(ids))} of them different")


def test_partitions_of_a_table_are_its_own(session: Any, tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    frame = session.range(0, 60, 1, 5)

    def build(p: beam.Pipeline) -> None:
        ids = p | ReadFromSpark(dataframe=frame) | beam.Map(lambda row: row.id)
        listed = ids | FullWindowPartition().map_partition(Listed(str(marker), 6))
        _ = listed | beam.combiners.ToList() | beam.Map(_check_fives) | beam.ParDo(Counted("ok"))

    wait_for_executors(session)
    assert counters(files(session, tmp_path).run(build)) == {"ok": 1}
    assert marker.exists()


def _check_fives(partitions: list[list[int]]) -> None:
    if sorted(partitions) != [[*range(start, start + 12)] for start in range(0, 60, 12)]:
        raise ValueError(f"other partitions: {partitions}")
