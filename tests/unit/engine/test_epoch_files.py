"""Where the tasks of a streaming pipeline have the local copies of their shards."""

from collections.abc import Callable
from pathlib import Path

import pytest

from beam_spark_runner.engine.epoch_files import folder_of_copies
from beam_spark_runner.engine.program import ShardLocations


def places(deltas: str = "/shared/a", local: str | None = None) -> ShardLocations:
    return ShardLocations(lineage="main", deltas=deltas, local=local, key_groups=128)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    def of(*of_spark: str, deltas: str = "/shared/a") -> Path:
        """Return the folder relative to the disks' own."""
        monkeypatch.setenv("SPARK_LOCAL_DIRS", ",".join(str(tmp_path / each) for each in of_spark))
        found = folder_of_copies(places(deltas))
        assert found.stat().st_mode & 0o777 == 0o700
        return found.relative_to(tmp_path)

    return of


def test_executors_of_a_host_share_them(folder: Callable[..., Path]) -> None:
    """Spark deletes the folder of an application when that ends, that of an executor earlier."""
    first = folder("disk/app/blockmgr-1", "disk2/app/blockmgr-1")
    assert first.parent == Path("disk/app")
    assert folder("disk/app/blockmgr-2", "disk2/app/blockmgr-2") == first
    assert folder("disk/other/blockmgr-3") != first


def test_jobs_do_not_share_a_folder_of_copies(folder: Callable[..., Path]) -> None:
    first = folder("disk/app/blockmgr-1")
    assert folder("disk/app/blockmgr-1", deltas="/shared/b") != first


def test_other_folders_are_taken_as_they_are(folder: Callable[..., Path]) -> None:
    assert folder("scratch").parent == Path("scratch")


def test_a_folder_that_another_user_has_made_is_not_used(
    folder: Callable[..., Path], tmp_path: Path
) -> None:
    made = tmp_path / folder("scratch")
    made.rmdir()
    made.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="it is a link"):
        folder("scratch")


def test_where_the_driver_says_so() -> None:
    assert folder_of_copies(places(local="/job/shards")) == Path("/job/shards")
