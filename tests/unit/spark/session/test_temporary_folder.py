"""Spark's temporary files, rows among them, are for the user alone who runs a pipeline."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from beam_spark_runner.core.errors import SparkSetupError
from beam_spark_runner.spark.session import jvm_folder, launch
from beam_spark_runner.spark.session.jvm_folder import JvmFolder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jvm_folder.tempfile, "gettempdir", lambda: str(tmp_path))  # type: ignore[attr-defined]
    return tmp_path / f"beam-spark-{os.geteuid()}"


def test_a_jvm_that_the_runner_starts_has_a_private_folder(temporary: Path) -> None:
    folder = JvmFolder()
    assert folder.path.parent == temporary
    for path in (temporary, folder.path):
        assert path.stat().st_mode & 0o777 == 0o700
    settings = launch._settings(str(folder.path), is_local=True, has_fresh_jvm=True, given={})
    assert f"-Djava.io.tmpdir={folder.path}" in settings["spark.driver.defaultJavaOptions"]
    assert "spark.local.dir" not in settings  # whose default is that folder: users may set it


@pytest.mark.parametrize("is_long", [False, True])
def test_sockets_of_long_paths_are_elsewhere(*, is_long: bool) -> None:
    path = "/" + "t" * (launch._MAX_SOCKET_FOLDER - (0 if is_long else 1))
    settings = launch._settings(path, is_local=True, has_fresh_jvm=True, given={})
    assert ("spark.python.unix.domain.socket.dir" in settings) is is_long


def test_a_folder_that_another_user_has_made_is_an_error(temporary: Path, tmp_path: Path) -> None:
    temporary.symlink_to(tmp_path)
    with pytest.raises(SparkSetupError, match=rf"{temporary}: it is a link") as raised:
        launch._jvm_folder()
    assert "TMPDIR" in str(raised.value)


def test_other_sessions_have_no_such_folder() -> None:
    for is_local, has_fresh_jvm in ((True, False), (False, True)):
        settings = launch._settings(None, is_local=is_local, has_fresh_jvm=has_fresh_jvm, given={})
        assert "java.io.tmpdir" not in settings.get("spark.driver.defaultJavaOptions", "")


def test_it_is_removed_with_its_files(temporary: Path) -> None:
    folder = JvmFolder()
    (folder.path / "blocks").mkdir()
    (folder.path / "blocks" / "rows").touch()
    folder.remove()
    assert list(temporary.iterdir()) == []


def test_one_is_left_alone_as_long_as_its_process_or_its_jvm_runs(temporary: Path) -> None:
    """Then the next start removes it, whoever was killed first."""
    folder = JvmFolder()
    (folder.path / "rows").touch()
    jvm = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(folder.lock,)
    )
    assert folder.path.exists()
    JvmFolder().remove()
    assert folder.path.exists()
    os.close(folder.lock)  # as the kernel does with this process
    JvmFolder().remove()
    assert folder.path.exists()
    jvm.communicate(b"end")
    JvmFolder().remove()
    assert list(temporary.iterdir()) == []


def test_starts_at_once_do_not_remove_each_others_new_folders(temporary: Path) -> None:
    made: list[JvmFolder] = []
    together = threading.Barrier(8)

    def start() -> None:
        together.wait()
        made.extend(JvmFolder() for _ in range(20))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.path for each in made) == sorted(temporary.iterdir())
    for each in made:
        each.remove()
