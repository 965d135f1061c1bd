"""What a job has on storage that driver and executors share."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.files import job_storage as storage_module
from beam_spark_runner.job.files.job_storage import JobStorage
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.object_folder import ObjectFolder

ROWS = "s3a://box/tmp/beam-a1"
SETTINGS = (("endpoint", "http://127.0.0.1:9"),)


class Store:
    """Stands for a Spark and a store; records what is deleted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, reason: str = "") -> None:
        self.removed: list[str] = []
        self.warnings: list[str] = []
        self._removal: Exception | None = None
        monkeypatch.setattr(storage_module, "check_stored_folder", lambda *_: reason)
        monkeypatch.setattr(storage_module, "remove_stored_folder", self._remove)

    def _remove(self, session: object, folder: Folder, url: str) -> None:
        if self._removal is not None:
            raise self._removal
        self.removed.append(url)

    def fail_to_remove(self, error: Exception) -> None:
        self._removal = error

    def storage(self, location: str | None, folder: Path | None = None) -> JobStorage:
        session: Any = SimpleNamespace(is_local=False)
        return JobStorage("a1", folder, location, session, SETTINGS, self.warnings.append)


@pytest.mark.parametrize("is_local", [True, False])
def test_files_in_a_mounted_folder_are_removed_with_it(tmp_path: Path, is_local: bool) -> None:
    folder = tmp_path / "beam-a1"
    session: Any = SimpleNamespace(is_local=is_local)
    storage = JobStorage("a1", folder, None, session, SETTINGS, pytest.fail)
    storage.open()
    assert folder.is_dir()
    assert storage.mounted == folder
    assert storage.files == MountedFolder(str(folder), syncs=False)
    assert storage.rows == (None if is_local else str(folder))
    storage.remove()
    assert not folder.exists()


def test_a_folder_of_somebody_else_stays(tmp_path: Path) -> None:
    folder = tmp_path / "beam-a1"
    folder.mkdir()
    session: Any = SimpleNamespace(is_local=True)
    storage = JobStorage("a1", folder, None, session, SETTINGS, pytest.fail)
    with pytest.raises(FileExistsError):
        storage.open()
    storage.remove()
    assert folder.exists()


def test_files_in_a_store_are_removed_once_they_were_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(monkeypatch)
    storage = store.storage("s3://box/tmp/")
    storage.remove()
    assert not store.removed  # nothing was made
    storage.open()
    assert storage.mounted is None
    assert storage.rows == "s3a://box/tmp/beam-a1"
    assert storage.files == ObjectFolder(ROWS, SETTINGS)
    storage.remove()
    assert store.removed == [ROWS]
    assert not store.warnings


def test_a_store_that_only_spark_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(monkeypatch, reason="on this machine: no credentials")
    storage = store.storage("s3://box/tmp")
    storage.open()
    assert storage.rows == "s3a://box/tmp/beam-a1"
    assert storage.files is None
    assert "--temp_location=s3://box/tmp (on this machine: no credentials)" in store.warnings[0]
    store.fail_to_remove(OSError("it is away"))
    storage.remove()
    assert store.warnings[1:] == ["s3a://box/tmp/beam-a1 could not be deleted: it is away"]


def test_a_url_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = Store(monkeypatch).storage("ftp://host/tmp")
    with pytest.raises(OptionsError, match=r"--temp_location: ftp://host/tmp is none of s3://"):
        storage.open()


def test_without_temporary_storage_there_are_no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(monkeypatch)
    storage = store.storage(None)
    storage.open()
    assert (storage.mounted, storage.rows, storage.files) == (None, None, None)
    storage.remove()
    assert not store.removed
