"""Files of a job in a mounted folder, and in an object store (obstore's store of local files)."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest

from beam_spark_runner.engine.shared_file import MountedFile, file_in, share_file
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.object_folder import ObjectFolder


@pytest.fixture(params=["mounted", "stored"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    place = tmp_path / "box"
    place.mkdir()
    if request.param == "stored":
        return ObjectFolder(f"file://{place}")
    return MountedFolder(str(place))


def test_other_tasks_find_a_file_of_a_task(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with folder.new_file("rows") as path:
        Path(path).write_bytes(b"some rows")
    buffer, mapped = file_in(folder, "rows").map()
    assert isinstance(buffer, pa.Buffer)
    assert mapped is not None
    assert buffer.to_pybytes() == mapped[:] == b"some rows"
    with file_in(folder, "rows").open() as file:
        assert file.read() == b"some rows"
    assert not list(temporary.iterdir())  # copies have no names


def test_a_file_of_the_driver_is_copied(folder: Folder, tmp_path: Path) -> None:
    source = tmp_path / "packages.tar"
    source.write_bytes(b"packages")
    shared = share_file(source, folder, lambda path: pytest.fail("Spark is not needed"))
    source.unlink()
    with shared.open() as file:
        assert file.read() == b"packages"


def test_without_a_folder_spark_copies_the_file(tmp_path: Path) -> None:
    assert share_file(tmp_path / "x", None, lambda path: MountedFile(path.name)) == MountedFile("x")
