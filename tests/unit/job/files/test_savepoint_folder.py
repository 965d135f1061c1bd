"""Folders of dated savepoints: which of them stay."""

from pathlib import Path

import pytest

from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.job.files.savepoint_folder import SavepointFolder
from beam_spark_runner.job.files.shard_places import existing_storage
from beam_spark_runner.observing.made_savepoints import MadeSavepoint
from beam_spark_runner.recovery.manifest import Manifest, encode, manifest_name, pin_name
from beam_spark_runner.recovery.savepoint_copy import NothingCommittedError, Savepoint
from beam_spark_runner.savepoint import main
from beam_spark_runner.storage.mounted_folder import MountedFolder

NOON_S = 1_796_040_000.0
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
FIRST = "20261130T120000000Z"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    commit(folder, 7)
    return folder


def commit(folder: Path, epoch: int) -> Manifest:
    manifest = Manifest(
        epoch=epoch, fence=1, lineage="main", parent=epoch - 1, partitions=1, key_groups=1
    )
    (folder / manifest_name("main", epoch)).write_bytes(encode(manifest))
    return manifest


def made(tmp_path: Path, checkpoint: Path, count: int) -> tuple[SavepointFolder, list[str]]:
    folder = SavepointFolder(str(tmp_path / "saved"))
    source = existing_storage(str(checkpoint), "checkpoint_dir")
    paths = [folder.make(source, NOON_S + hour * HOUR_S).path for hour in range(count)]
    return folder, paths


def folders(tmp_path: Path) -> list[str]:
    return sorted(str(each) for each in (tmp_path / "saved").iterdir() if each.is_dir())


def test_the_newest_savepoints_stay(tmp_path: Path, checkpoint: Path) -> None:
    folder, paths = made(tmp_path, checkpoint, 4)
    times_s = [NOON_S + hour * HOUR_S for hour in range(4)]
    assert folder.complete() == [
        MadeSavepoint(path, 7, None, at_s) for path, at_s in zip(paths, times_s, strict=True)
    ]
    assert paths[0] == str(tmp_path / "saved" / FIRST)
    assert (tmp_path / "saved" / f"{FIRST}.savepoint").read_text() == "7"
    assert folder.retain(3, (), NOON_S) == paths[:1]
    assert folders(tmp_path) == paths[1:]
    assert folder.retain(3, (), NOON_S) == []
    left = sorted(each.suffix for each in (tmp_path / "saved").iterdir() if each.is_file())
    assert left == [".savepoint"] * 3


def test_what_a_pipeline_begins_from_stays(tmp_path: Path, checkpoint: Path) -> None:
    folder, paths = made(tmp_path, checkpoint, 4)
    Path(paths[1], pin_name(7, "ab")).touch()
    assert folder.retain(1, [paths[0]], NOON_S) == [paths[2]]
    assert folders(tmp_path) == [paths[0], paths[1], paths[3]]


def test_a_pipeline_pins_what_it_begins_from(tmp_path: Path, checkpoint: Path) -> None:
    _, (path,) = made(tmp_path, checkpoint, 1)
    pinned: list[list[str]] = []

    class Target(CheckpointStorage):
        def create(self, name: str, data: bytes, after: object = ()) -> bool:
            pinned.append([each.name for each in Path(path).glob("*.pin")])
            return True

    source = existing_storage(path, "savepoint_path")
    target = Target(MountedFolder(str(tmp_path)), "target")
    copied = Savepoint(lambda *_: None, source, target, "ab").begin_with(commit(checkpoint, 7))
    assert copied is None
    assert pinned == [[pin_name(7, "ab")]] * 2
    assert list(Path(path).glob("*.pin")) == []


def test_what_is_left_of_makers_that_died(tmp_path: Path, checkpoint: Path) -> None:
    folder, paths = made(tmp_path, checkpoint, 2)
    saved = tmp_path / "saved"
    (saved / f"{FIRST}.savepoint").rename(saved / f"{FIRST}.begun")  # it was never complete
    assert folder.complete()[-1].at_s == NOON_S + HOUR_S
    folder.retain(1, (), NOON_S + DAY_S)
    assert folders(tmp_path) == paths  # perhaps it is still being made
    folder.retain(1, (), NOON_S + DAY_S + 1)
    assert folders(tmp_path) == paths[1:]
    (saved / f"{Path(paths[1]).name}.removing").touch()  # a removal that has not ended
    assert folder.complete() == []
    folder.retain(1, (), NOON_S)
    assert list(saved.iterdir()) == []


def test_without_an_epoch_there_is_no_savepoint(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NothingCommittedError):
        made(tmp_path, tmp_path / "empty", 1)
    assert SavepointFolder(str(tmp_path / "saved")).complete() == []


def test_the_command_removes_all_but_the_newest_savepoints(
    tmp_path: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, paths = made(tmp_path, checkpoint, 2)
    flags = [f"--checkpoint_dir={checkpoint}", f"--savepoint_dir={tmp_path / 'saved'}"]
    # Those of the fixture are of the future.
    assert main([*flags, "--savepoint_keep=2"]) == 0
    first, *removed = capsys.readouterr().out.splitlines()
    assert first.endswith("has the state of the pipeline after epoch 7")
    assert len(removed) == 1
    assert len(folders(tmp_path)) == 2
    assert main([*flags, "--savepoint_keep=0"]) == 2
    assert main([f"--checkpoint_dir={checkpoint}", "--savepoint_path=x", "--savepoint_keep=1"]) == 2
    assert len(paths) == 2
