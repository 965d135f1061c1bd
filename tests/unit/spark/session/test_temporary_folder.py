"""Spark's temporary files, rows among them, are for the user alone who runs a pipeline."""

import os
from pathlib import Path

import pytest

from beam_spark_runner.core.errors import SparkSetupError
from beam_spark_runner.spark import socket_folders
from beam_spark_runner.spark.session import launch
from beam_spark_runner.spark.session.start_settings import settings_of_runner


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(launch.tempfile, "gettempdir", lambda: str(tmp_path))  # type: ignore[attr-defined]
    return tmp_path / f"beam-spark-{os.geteuid()}"


def test_a_jvm_that_the_runner_starts_has_a_private_folder(temporary: Path) -> None:
    folder = launch._jvm_folder()
    assert folder.path.parent == temporary
    for path in (temporary, folder.path):
        assert path.stat().st_mode & 0o777 == 0o700
    settings = settings_of_runner(str(folder.path), is_local=True, has_fresh_jvm=True, given={})
    assert f"-Djava.io.tmpdir={folder.path}" in settings["spark.driver.defaultJavaOptions"]
    assert "spark.local.dir" not in settings  # whose default is that folder: users may set it


@pytest.mark.parametrize("is_long", [False, True])
def test_sockets_of_long_paths_are_elsewhere(*, is_long: bool) -> None:
    path = "/" + "t" * (socket_folders._MAX_LENGTH - (0 if is_long else 1))
    settings = settings_of_runner(path, is_local=True, has_fresh_jvm=True, given={})
    assert ("spark.python.unix.domain.socket.dir" in settings) is is_long


def test_a_folder_that_another_user_has_made_is_an_error(temporary: Path, tmp_path: Path) -> None:
    temporary.symlink_to(tmp_path)
    with pytest.raises(SparkSetupError, match=rf"{temporary}: it is a link") as raised:
        launch._jvm_folder()
    assert "TMPDIR" in str(raised.value)


def test_other_sessions_have_no_such_folder() -> None:
    for is_local, has_fresh_jvm in ((True, False), (False, True)):
        settings = settings_of_runner(
            None, is_local=is_local, has_fresh_jvm=has_fresh_jvm, given={}
        )
        assert "java.io.tmpdir" not in settings.get("spark.driver.defaultJavaOptions", "")
