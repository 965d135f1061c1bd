"""Folders whose names others can guess belong to this user alone, or are not used."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.harness.environments import installed_packages as packages
from beam_spark_runner.harness.private_folder import private_folder


def test_it_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "parent" / "folder"
    before = os.umask(0)
    try:
        assert private_folder(path) == path
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o700
    (path / "file").touch()
    assert private_folder(path) == path  # a second time


def test_a_folder_that_was_open_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    path.chmod(0o777)
    assert private_folder(path).stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match=r"belongs to another user.*TMPDIR"):
        private_folder(path)


def to_a_folder(path: Path) -> None:
    elsewhere = path.with_name("elsewhere")
    elsewhere.mkdir()
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("make", [to_a_folder])
def test_links_are_refused(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "folder"
    make(path)
    with pytest.raises(PermissionError, match="it is a link"):
        private_folder(path)


def test_packages_are_not_installed_in_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setattr(packages.tempfile, "gettempdir", lambda: str(tmp_path))  # type: ignore[attr-defined]
    place = tmp_path / f"beam-packages-{os.getuid()}"
    to_a_folder(place)
    with pytest.raises(EnvironmentStartError, match=re.escape(str(place))):
        packages.stage_files([], {}, installs=False)
    assert not list((tmp_path / "elsewhere").iterdir())
