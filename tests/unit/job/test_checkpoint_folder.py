import multiprocessing
from pathlib import Path

import pytest

from beam_spark_runner.job.checkpoint_folder import CheckpointFolder, CheckpointFolderError


def test_a_file_is_created_once(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "a" / "b")
    assert folder.create("name", b"first")
    assert not folder.create("name", b"second")
    assert folder.read("name") == b"first"
    assert folder.names() == ["name"]


def _create(folder: str, number: int) -> bool:
    return CheckpointFolder(Path(folder)).create("name", str(number).encode() * 10_000)


def test_one_of_several_processes_creates_it(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        for round_ in range(20):
            folder = tmp_path / str(round_)
            created = pool.starmap(_create, [(str(folder), number) for number in range(8)])
            (winner,) = [number for number, has_created in enumerate(created) if has_created]
            assert CheckpointFolder(folder).read("name") == str(winner).encode() * 10_000
            assert CheckpointFolder(folder).names() == ["name"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointFolderError, match="file/folder cannot be used: "):
        CheckpointFolder(tmp_path / "file" / "folder")


def test_a_missing_file_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointFolderError, match=r"cannot be used: .*missing"):
        CheckpointFolder(tmp_path).read("missing")
