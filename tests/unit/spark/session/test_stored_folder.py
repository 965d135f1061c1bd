"""Folders that this machine or executors cannot use."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session import stored_folder
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.object_folder import ObjectFolder

URL = "s3a://box/tmp"


@pytest.mark.parametrize("is_connect", [True, False], ids=["Connect", "classic"])
def test_without_access_the_reason_is_returned(
    monkeypatch: pytest.MonkeyPatch, is_connect: bool
) -> None:
    """On Connect the probe cannot be deleted either: that is no error of the pipeline's."""
    deleted: list[str] = []

    def fail(*_: object) -> None:
        raise OSError("no credentials")

    class Session:
        """Stands for a Spark that writes and reads there."""

        spark: Any = None

        def application_id(self) -> str:
            return f"application of {is_connect}"

    session: Any = Session()
    session.is_connect = is_connect
    monkeypatch.setattr(stored_folder, "_check_spark", lambda *_: None)
    monkeypatch.setattr(ObjectFolder, "create", fail)
    monkeypatch.setattr(ObjectFolder, "remove", fail)
    monkeypatch.setattr(pyspark_internals, "delete_path", lambda _, url: deleted.append(url))
    reason = stored_folder.check_stored_folder(session, ObjectFolder(URL), URL)
    assert reason == "on this machine: OSError: no credentials"
    assert len(deleted) == (not is_connect)


class Executors:
    """Stands for a session whose tasks run here, each with some methods of folders replaced."""

    is_local = False
    numbers = itertools.count()

    def __init__(self, **methods: Callable[..., Any]) -> None:
        self.spark, self._methods = self, methods
        self._application = f"application {next(self.numbers)}"
        self.ran = 0

    def application_id(self) -> str:
        return self._application

    def slots(self) -> int:
        return 3

    def range(self, *_: int) -> "Executors":
        return self

    def mapInArrow(self, task: Callable[[Iterator[Any]], Iterator[Any]], _: str) -> "Executors":
        self._task = task
        return self

    def collect(self) -> list[Any]:
        self.ran += 1
        with contextlib.ExitStack() as replaced:
            for name, method in self._methods.items():
                replaced.enter_context(mock.patch.object(MountedFolder, name, method))
            batches = [batch for _ in range(3) for batch in self._task(iter([]))]
        return [(row["reason"],) for batch in batches for row in batch.to_pylist()]


def check(session: Executors, folder: Path) -> None:
    """Check a folder as that of --checkpoint_dir."""
    given: Any = session
    stored_folder.check_shared_folder(
        given, MountedFolder(str(folder)), str(folder), "checkpoint_dir"
    )


def test_a_folder_that_all_share_is_checked_once(tmp_path: Path) -> None:
    session = Executors()
    check(session, tmp_path / "probe")
    check(session, tmp_path / "probe")
    assert session.ran == 1
    assert list((tmp_path / "probe").iterdir()) == []


def missing(*_: object, **__: object) -> None:
    raise FileNotFoundError(2, "No such file or directory")


@pytest.mark.parametrize(
    ("methods", "reason"),
    [
        ({"read": missing}, "on an executor: FileNotFoundError: .* No such file or directory"),
        ({"read": lambda *_: b""}, "a file has another content"),
        ({"create": missing}, "on an executor: FileNotFoundError: .* No such file or directory"),
    ],
    ids=["not mounted", "another folder", "it cannot be written"],
)
def test_a_folder_that_executors_do_not_share(
    tmp_path: Path, methods: dict[str, Any], reason: str
) -> None:
    said = rf"--checkpoint_dir: {tmp_path} is not storage that all executors share .*\({reason}\)"
    with pytest.raises(OptionsError, match=said):
        check(Executors(**methods), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_this_machine_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OptionsError, match="on this machine: FileExistsError"):
        check(Executors(), tmp_path / "file")


def test_nothing_is_checked_on_a_local_spark(tmp_path: Path) -> None:
    session = Executors()
    session.is_local = True
    check(session, tmp_path / "probe")
    assert not (tmp_path / "probe").exists()
