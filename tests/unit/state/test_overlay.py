"""The changes of an attempt, and what is left of one that was killed."""

import os
import threading
from pathlib import Path

import pytest

from beam_spark_runner.state.remote import overlay as overlay_module
from beam_spark_runner.state.remote.overlay import Overlay
from beam_spark_runner.state.stored_deltas import ShardStorageError


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have overlays keep nothing in memory."""
    monkeypatch.setattr(overlay_module, "_FEW", 0)


@pytest.mark.parametrize("few", [0, 1, 2, 3])
def test_changes_are_in_the_order_of_their_keys(
    few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay_module, "_FEW", few)
    overlay = Overlay(tmp_path)
    overlay.put(b"kc", b"3")
    overlay.forget(b"kc")
    overlay.forget(b"kc")
    for key, value in ((b"kb", b"1"), (b"ka", None), (b"d", b""), (b"kb", b"2")):
        overlay.put(key, value)
    assert overlay.changes == 7
    assert bool(list(tmp_path.iterdir())) is (few < 3)
    assert list(overlay.items(b"")) == [(b"d", b""), (b"ka", None), (b"kb", b"2")]
    assert list(overlay.items(b"k")) == [(b"ka", None), (b"kb", b"2")]
    assert overlay.get(b"ka") == (True, None)
    assert overlay.get(b"k") == (False, None)
    assert overlay.next(b"ka") == (b"ka", None)
    assert overlay.next(b"ka", is_passed=True) == (b"kb", b"2")
    assert overlay.next(b"kb", is_passed=True) is None
    overlay.close()
    overlay.close()
    assert not list(tmp_path.iterdir())


def test_long_values_are_on_disk(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path)
    for number in range(3):
        overlay.put(b"%d" % number, bytes(600_000))
        assert bool(list(tmp_path.iterdir())) is (number > 0)
    assert [len(value or b"") for _, value in overlay.items(b"")] == [600_000] * 3
    overlay.close()


def test_without_changes_there_is_no_file(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path / "folder")
    assert overlay.get(b"key") == (False, None)
    assert overlay.next(b"") is None
    assert list(overlay.items(b"")) == []
    overlay.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("few", [0, 1_000])
def test_what_killed_processes_have_left_is_removed(
    few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay_module, "_FEW", 0)

    def begun() -> Overlay:
        overlay = Overlay(tmp_path)
        overlay.forget(b"unknown")
        overlay.put(b"begun", b"")
        return overlay

    used, left = begun(), begun()
    assert left._file is not None
    os.close(left._file._folder.lock)  # as when its process has died
    monkeypatch.setattr(overlay_module, "_FEW", few)
    new = begun()
    assert not left._file._folder.path.exists()
    assert used.get(b"begun") == (True, b"")
    left._file._folder.lock = os.open(tmp_path, os.O_RDONLY)
    for each in (used, new, left):
        each.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("on_disk")
def test_a_disk_that_does_not_work(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    with pytest.raises(ShardStorageError, match="file"):
        Overlay(place).put(b"key", b"value")


@pytest.mark.usefixtures("on_disk")
def test_it_is_closed_by_another_thread_than_that_of_the_first_change(tmp_path: Path) -> None:
    overlay = Overlay(tmp_path)
    for work in (lambda: overlay.put(b"key", b"value"), overlay.close):
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    assert not list(tmp_path.iterdir())
