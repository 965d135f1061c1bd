"""Users remove a checkpoint while a driver of it sleeps, and start another pipeline there."""

import dataclasses
import errno
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.job.files.shard_places import (
    checkpoints_in,
    existing_storage,
    in_subfolder,
    shard_places,
)
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.recovery.batch_start import SUBMISSION
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.driver_start import Checkpoints, DriverStart
from beam_spark_runner.recovery.manifest import FencedError, epochs_of
from beam_spark_runner.storage.mounted_folder import MountedFolder
from tests.unit.recovery.drivers import VERSION


def checkpoints(folder: Path) -> Checkpoints:
    options = PipelineOptions(["--streaming", f"--checkpoint_dir={folder}"])
    config = RunnerConfig.from_options(options)
    return checkpoints_in(in_subfolder(shard_places(config, None, is_local=True), config), config)


def start(folder: Path) -> DriverStart:
    return DriverStart(checkpoints(folder), VERSION, 1)


def commit(driver: DriverStart, clock_us: int) -> None:
    last = driver.manifest
    epoch = last.epoch + 1
    driver.commit(dataclasses.replace(last, epoch=epoch, parent=last.epoch, clock_us=clock_us))


def clocks(folder: Path) -> list[int]:
    found = newest(existing_storage(str(folder), "checkpoint_dir"), epochs_of("main"), 10)
    return [each.clock_us for each in found]


@pytest.mark.parametrize("is_folder_removed", [True, False])
def test_a_driver_that_wakes_up_in_a_commit_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_folder_removed: bool
) -> None:
    folder = tmp_path / "checkpoint"
    late, others = start(folder), list[DriverStart]()
    commit(late, 1)
    real = CheckpointStorage.create

    def create(storage: Any, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        if name.endswith(".manifest") and not others:
            shutil.rmtree(folder)
            if not is_folder_removed:
                folder.mkdir()
            others.append(start(folder))
            commit(others[0], 10)
        return real(storage, name, data, after)

    monkeypatch.setattr(CheckpointStorage, "create", create)
    with pytest.raises(FencedError, match="were removed while it ran"):
        commit(late, 2)
    commit(others[0], 20)
    assert clocks(folder) == [10, 20]
    commit(start(folder), 30)
    assert clocks(folder) == [10, 20, 30]


def test_a_start_that_wakes_up_before_its_claim_does_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    late = checkpoints(folder)
    shutil.rmtree(folder)
    driver = start(folder)
    Path(str(late.storage._place)).mkdir()  # type: ignore[attr-defined]
    with pytest.raises(FencedError, match="were removed"):
        DriverStart(late, VERSION, 1)
    commit(driver, 10)
    assert clocks(folder) == [10]


def test_a_disk_that_does_not_work_is_no_checkpoint_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``os.path.isdir`` is false while a disk does not work."""
    driver = start(tmp_path)
    place = str(driver._storage._place)  # type: ignore[attr-defined]

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "no answer", place)

    with monkeypatch.context() as patch:
        patch.setattr(MountedFolder, "names", fail)
        patch.setattr(MountedFolder, "create", fail)
        patch.setattr(MountedFolder, "exists", lambda folder: folder.path != place)
        with pytest.raises(CheckpointStorageError, match="no answer"):
            commit(driver, 1)
        with pytest.raises(CheckpointStorageError, match="no answer"):
            driver._storage.create("any", b"")
    commit(driver, 1)
    assert clocks(tmp_path) == [1]


def test_the_folder_of_a_batch_job_is_refused(tmp_path: Path) -> None:
    (tmp_path / SUBMISSION).write_text("a job")
    with pytest.raises(OptionsError, match="has a batch job"):
        start(tmp_path)
