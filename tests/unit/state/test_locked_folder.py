"""Folders that are removed once nobody uses them."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from beam_spark_runner.state.locked_folder import LockedFolder


def made_in(root: Path) -> LockedFolder:
    return LockedFolder(root, "one-")


def test_a_file_system_without_locks_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="No locks available"):
        made_in(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_it_is_removed_with_its_files(tmp_path: Path) -> None:
    folder = made_in(tmp_path)
    (folder.path / "blocks").mkdir()
    (folder.path / "blocks" / "rows").touch()
    folder.remove()
    assert list(tmp_path.iterdir()) == []


def test_one_is_left_alone_as_long_as_one_of_its_processes_runs(tmp_path: Path) -> None:
    """Then the next start removes it, whoever was killed first."""
    folder = made_in(tmp_path)
    (folder.path / "rows").touch()
    other = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(folder.lock,)
    )
    assert folder.path.exists()
    made_in(tmp_path).remove()
    assert folder.path.exists()
    os.close(folder.lock)  # as the kernel does with this process
    made_in(tmp_path).remove()
    assert folder.path.exists()
    other.communicate(b"end")
    made_in(tmp_path).remove()
    assert list(tmp_path.iterdir()) == []


def test_starts_at_once_do_not_remove_each_others_new_folders(tmp_path: Path) -> None:
    made: list[LockedFolder] = []
    together = threading.Barrier(8)

    def start() -> None:
        together.wait()
        made.extend(made_in(tmp_path) for _ in range(20))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(each.path for each in made) == sorted(tmp_path.iterdir())
    for each in made:
        each.remove()
