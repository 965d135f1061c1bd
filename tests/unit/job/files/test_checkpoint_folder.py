import errno
import multiprocessing
import os
from pathlib import Path

import pytest

from beam_spark_runner.job.files.checkpoint_storage import CheckpointFolderError, CheckpointStorage
from beam_spark_runner.recovery.commit import claim, commit, newest
from beam_spark_runner.recovery.heads import DeltaId, Head
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    Manifest,
    epochs_of,
    manifest_name,
)
from beam_spark_runner.storage.mounted_folder import MountedFolder, NotDurableError


def storage_in(folder: Path, *, syncs: bool = True) -> CheckpointStorage:
    storage = CheckpointStorage(MountedFolder(str(folder), syncs), str(folder))
    storage.make("checkpoint_dir")
    return storage


EPOCHS = epochs_of("main")
MANIFEST = Manifest(
    epoch=1,
    fence=1,
    lineage="main",
    parent=0,
    partitions=2,
    key_groups=128,
    heads={(1, 0): Head(DeltaId(1, 77))},
)


def test_a_file_is_created_once(tmp_path: Path) -> None:
    folder = storage_in(tmp_path / "a" / "b")
    assert folder.create("name", b"first")
    assert not folder.create("name", b"second")
    assert folder.read("name") == b"first"
    assert folder.names() == ["name"]


def _create(folder: str, number: int) -> bool:
    return storage_in(Path(folder)).create("name", str(number).encode() * 10_000)


def test_one_of_several_processes_creates_it(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        for round_ in range(20):
            folder = tmp_path / str(round_)
            created = pool.starmap(_create, [(str(folder), number) for number in range(8)])
            (winner,) = [number for number, has_created in enumerate(created) if has_created]
            assert storage_in(folder).read("name") == str(winner).encode() * 10_000
            assert storage_in(folder).names() == ["name"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointFolderError, match="file/folder cannot be used: "):
        storage_in(tmp_path / "file" / "folder")


def test_a_missing_file_is_an_error_that_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointFolderError, match=r"cannot be used: .*missing"):
        storage_in(tmp_path).read("missing")


@pytest.mark.parametrize("error", [FileExistsError, TimeoutError])
def test_a_link_that_is_there_after_an_error_is_ours(
    error: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_and_lose_the_answer(source: str, target: str) -> None:
        link(source, target)
        raise error

    monkeypatch.setattr(os, "link", link_and_lose_the_answer)
    folder = storage_in(tmp_path)
    assert folder.create("name", b"data")
    assert folder.names() == ["name"]


def _path(descriptor: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}"))


def test_what_others_have_written_is_durable_before_the_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Path] = []
    sync, link = os.fsync, os.link

    def note(descriptor: int) -> None:
        sync(descriptor)
        done.append(_path(descriptor))

    def give_name(source: str, target: str) -> None:
        assert {*done} == {tmp_path / other for other in others} | {tmp_path, Path(source)}
        done.clear()
        link(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "link", give_name)
    others = [f"other-{number}" for number in range(20)]
    for other in others:
        (tmp_path / other).write_bytes(b"delta")
    assert storage_in(tmp_path).create("name", b"data", others)
    assert done == [tmp_path]  # which has the new name by then


def test_what_the_disk_may_have_lost_is_named_and_nothing_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def fail(descriptor: int) -> None:
        if _path(descriptor).name == "b":
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fail)
    for other in "ab":
        (tmp_path / other).touch()
    folder = storage_in(tmp_path)
    with pytest.raises(NotDurableError, match=r"may have lost .*/b: .*Input/output error"):
        folder.create("name", b"data", "ab")
    assert sorted(folder.names()) == ["a", "b"]


def test_no_other_error_hides_what_the_disk_may_have_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports a loss once: after a second try, all would seem to be well."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    (tmp_path / "b").touch()
    with pytest.raises(NotDurableError):
        storage_in(tmp_path).create("name", b"data", ["gone", "b"])


def test_what_another_driver_has_deleted_can_be_tried_again(tmp_path: Path) -> None:
    """For then it is found that the other one has taken over."""
    folder = storage_in(tmp_path)
    with pytest.raises(CheckpointFolderError, match=r"could not create name: .*gone"):
        folder.create("name", b"data", ["gone"])
    assert folder.names() == []


def test_a_folder_that_knows_no_links_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_source: str, _target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    folder = storage_in(tmp_path)
    with pytest.raises(CheckpointFolderError, match=r"could not create name: .*not permitted"):
        folder.create("name", b"data")
    assert folder.names() == []


def test_what_is_deleted_is_gone_and_may_be_so_already(tmp_path: Path) -> None:
    folder = storage_in(tmp_path)
    for name in "abc":
        folder.create(name, b"")
    folder.delete(["a", "missing", "c"])
    folder.delete(["a"])
    assert folder.names() == ["b"]


def test_what_cannot_be_deleted_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(CheckpointFolderError, match="could not delete files: "):
        storage_in(tmp_path).delete(["a"])


def test_every_byte_that_the_disk_has_changed_is_noticed(tmp_path: Path) -> None:
    folder = storage_in(tmp_path)
    assert claim(folder) == MANIFEST.fence
    commit(folder, EPOCHS, MANIFEST)
    assert newest(folder, EPOCHS) == (MANIFEST,)
    file = tmp_path / manifest_name("main", 1)
    data = file.read_bytes()
    for position in range(len(data)):
        file.write_bytes(data[:position] + bytes([data[position] ^ 255]) + data[position + 1 :])
        with pytest.raises(CorruptManifestError):
            newest(folder, EPOCHS)


def test_a_folder_that_ends_with_the_job_is_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync takes longer than the rest of a small epoch."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    (tmp_path / "other").write_bytes(b"delta")
    folder = storage_in(tmp_path, syncs=False)
    assert folder.create("name", b"data", ["other"])
    assert not folder.create("name", b"again")
    assert folder.read("name") == b"data"
    assert synced == []
