"""Where the tasks of a streaming pipeline have the local copies of their shards."""

from pathlib import Path

import pytest

from beam_spark_runner.spark.program import ShardLocations
from beam_spark_runner.spark.task.epoch_files import folder_of_copies


def places(deltas: str = "/shared/a", local: str | None = None) -> ShardLocations:
    return ShardLocations(lineage="main", deltas=deltas, local=local, key_groups=128)


def folder(monkeypatch: pytest.MonkeyPatch, of_spark: str, deltas: str = "/shared/a") -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", of_spark)
    return folder_of_copies(places(deltas))


def test_executors_of_a_host_share_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark deletes the folder of an application when that ends, that of an executor earlier."""
    first = folder(monkeypatch, "/disk/app/blockmgr-1,/disk2/app/blockmgr-1")
    assert first.parent == Path("/disk/app")
    assert folder(monkeypatch, "/disk/app/blockmgr-2,/disk2/app/blockmgr-2") == first
    assert folder(monkeypatch, "/disk/other/blockmgr-3") != first


def test_jobs_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    first = folder(monkeypatch, "/disk/app/blockmgr-1")
    assert folder(monkeypatch, "/disk/app/blockmgr-1", "/shared/b") != first


def test_other_folders_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder(monkeypatch, "/scratch").parent == Path("/scratch")


def test_where_the_driver_says_so() -> None:
    assert folder_of_copies(places(local="/job/shards")) == Path("/job/shards")
