"""Files of a job on mounted storage, and in a store that has URLs."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from apache_beam.io.filesystem import FileSystem
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions, S3Options

from beam_spark_runner.core.storage_urls import StorageUrl
from beam_spark_runner.engine.shared_file import MountedFile
from beam_spark_runner.engine.shared_folder import (
    MountedFolder,
    SharedFolder,
    StoredFolder,
    share_file,
)
from beam_spark_runner.engine.stored_object import StoredObject

OPTIONS = json.dumps({"beam:option:s3_endpoint_url:v1": "http://127.0.0.1:9"})


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the objects of ``test://`` are."""
    root = tmp_path / "store"
    root.mkdir()

    class Store(LocalFileSystem):  # type: ignore[misc]
        """Sees the options that it gets, as stores of clouds do."""

        def __init__(self, options: PipelineOptions) -> None:
            super().__init__(options)
            assert options.view_as(S3Options).s3_endpoint_url == "http://127.0.0.1:9"

        @classmethod
        def scheme(cls) -> str:
            return "test"

        def create(self, path: str, *arguments: Any) -> Any:
            return super().create(path.replace("test://", f"{root}/"), *arguments)

        def open(self, path: str, *arguments: Any) -> Any:
            return super().open(path.replace("test://", f"{root}/"), *arguments)

        def delete(self, paths: list[str]) -> None:
            super().delete([path.replace("test://", f"{root}/") for path in paths])

    monkeypatch.setattr(FileSystem, "get_all_subclasses", lambda: [LocalFileSystem, Store])
    return root


@pytest.fixture(params=["mounted", "stored"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, store: Path) -> SharedFolder:
    if request.param == "stored":
        return StoredFolder(StorageUrl("spark://job", "test://job"), OPTIONS)
    (tmp_path / "mounted").mkdir()
    return MountedFolder(str(tmp_path / "mounted"))


def test_a_file_of_a_task_is_found_by_others(
    folder: SharedFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with folder.new_file("rows") as path:
        Path(path).write_bytes(b"some rows")
    buffer, mapped = folder.file("rows").map()
    assert isinstance(buffer, pa.Buffer)
    assert mapped is not None
    assert buffer.to_pybytes() == mapped[:] == b"some rows"
    with folder.file("rows").open() as file:
        assert file.read() == b"some rows"
    assert not list(temporary.iterdir())  # copies have no names


def test_a_file_of_the_driver_is_copied(folder: SharedFolder, tmp_path: Path) -> None:
    source = tmp_path / "packages.tar"
    source.write_bytes(b"packages")
    shared = share_file(source, folder, lambda path: pytest.fail("Spark is not needed"))
    source.unlink()
    with shared.open() as file:
        assert file.read() == b"packages"


def test_without_a_folder_spark_copies_it(tmp_path: Path) -> None:
    assert share_file(tmp_path / "x", None, lambda path: MountedFile(path.name)) == MountedFile("x")


def test_what_a_failed_task_has_written_is_not_stored(store: Path) -> None:
    folder = StoredFolder(StorageUrl("spark://job", "test://job"), OPTIONS)

    def fail() -> None:
        with folder.new_file("rows") as path:
            Path(path).write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not list(store.rglob("*rows*"))


def test_an_object_is_written_read_and_removed(store: Path) -> None:
    stored = StoredObject("test://probe", OPTIONS)
    stored.write(b"content")
    assert stored.read() == b"content"
    stored.remove()
    assert not list(store.iterdir())
    with pytest.raises(OSError, match="probe"):
        stored.read()


def test_a_store_that_beam_does_not_know_is_named(store: Path) -> None:
    with pytest.raises(ValueError, match=r"no file system for gs:// here: .*extra"):
        StoredObject("gs://box/x", OPTIONS).read()


def test_files_with_the_ends_of_compressed_ones_are_stored_as_they_are(store: Path) -> None:
    StoredObject("test://rows.gz", OPTIONS).write(b"content")
    assert (store / "rows.gz").read_bytes() == b"content"
