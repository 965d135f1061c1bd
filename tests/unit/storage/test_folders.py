"""The contract of ``Folder``, for a mounted folder and for an object store of local files."""

import contextlib
import io
import pickle
from pathlib import Path

import pytest

from beam_spark_runner.storage.folder import Folder, UrlFolder
from beam_spark_runner.storage.folder_at import folder_at
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.object_folder import ObjectFolder


@pytest.fixture(params=["mounted", "stored"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    place = tmp_path / "box"
    place.mkdir()
    if request.param == "stored":
        return ObjectFolder(f"file://{place}")
    return MountedFolder(str(place))


def subfolder(folder: Folder, name: str) -> MountedFolder | UrlFolder:
    """Return a subfolder that exists: obstore's store of local files does not create it."""
    found = folder / name
    assert isinstance(found, MountedFolder | UrlFolder)
    place = found.path if isinstance(found, MountedFolder) else found.url.removeprefix("file://")
    Path(place).mkdir()
    return found


def test_a_file_that_a_failed_task_has_written_is_not_stored(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    folder = ObjectFolder(f"file://{tmp_path}/box")
    with contextlib.suppress(ZeroDivisionError), folder.new_file("rows") as path:
        Path(path).write_bytes(b"half")
        raise ZeroDivisionError
    assert folder.names() == []


def test_names_are_those_of_files_in_the_folder_itself(folder: Folder) -> None:
    subfolder(folder, "below").put_content("other", io.BytesIO(b""))
    folder.put_content("own", io.BytesIO(b""))
    assert list(folder.names()) == ["own"]


def test_a_folder_is_removed_with_its_content(folder: Folder) -> None:
    job = subfolder(folder, "job")
    job.create("a", b"1")
    subfolder(job, "below").create("b", b"2")
    folder.create("kept", b"3")
    job.remove()
    job.remove()
    assert list(folder.names()) == ["kept"]
    with pytest.raises(FileNotFoundError):
        job.read("a")
    with pytest.raises(FileNotFoundError):
        (job / "below").read("b")


def test_a_local_path_has_the_content(folder: Folder) -> None:
    folder.create("a", b"content")
    with folder.local("a") as path:
        assert Path(path).read_bytes() == b"content"
    with pytest.raises(FileNotFoundError), folder.local("missing") as path:
        Path(path).read_bytes()


def test_executors_get_the_folder(folder: Folder) -> None:
    folder.create("a", b"content")
    assert pickle.loads(pickle.dumps(folder)).read("a") == b"content"


def test_a_path_is_a_mounted_folder() -> None:
    assert folder_at("/mnt/a", syncs=False) == MountedFolder("/mnt/a", syncs=False)
