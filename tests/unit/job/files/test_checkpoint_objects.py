"""Checkpoints in an object store, over obstore's own store of local files."""

import io
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.storage.object_folder import ObjectFolder


def _storage(folder: ObjectFolder) -> CheckpointStorage:
    return CheckpointStorage(folder, folder.url)


@pytest.fixture
def folder(tmp_path: Path) -> ObjectFolder:
    (tmp_path / "box").mkdir()
    return ObjectFolder(f"file://{tmp_path}/box")


@pytest.fixture
def storage(folder: ObjectFolder) -> CheckpointStorage:
    return _storage(folder)


def test_objects_are_created_once_and_never_replaced(storage: CheckpointStorage) -> None:
    assert storage.create("a", b"one", after=["b"])
    assert not storage.create("a", b"two")
    assert storage.read("a") == b"one"


def test_what_is_put_is_found_until_it_is_deleted(
    storage: CheckpointStorage, folder: ObjectFolder, tmp_path: Path
) -> None:
    content = bytes(20 << 20)
    storage.put("large", io.BytesIO(content))
    (tmp_path / "local").write_bytes(b"small")
    folder.put("small", tmp_path / "local")
    folder.put_content("below/it", io.BytesIO(b""))
    assert sorted(storage.names()) == ["large", "small"]
    for name, expected in (("large", content), ("small", b"small")):
        opened = storage.open(name)
        assert opened is not None
        with opened:
            assert opened.read() == expected
    storage.delete(["large", "missing", "small"])
    storage.delete([])
    assert list(storage.names()) == []
    assert storage.open("large") is None


def test_a_missing_object_is_an_error_where_it_must_be_there(
    storage: CheckpointStorage, folder: ObjectFolder
) -> None:
    with pytest.raises(CheckpointStorageError, match="could not read gone"):
        storage.read("gone")
    with pytest.raises(FileNotFoundError):
        folder.open("gone")


def test_a_second_start_finds_the_probe(storage: CheckpointStorage, folder: ObjectFolder) -> None:
    for _ in range(2):
        _storage(folder).make("checkpoint_dir")
    assert list(storage.names()) == ["creates.probe"]


def test_a_probe_that_another_driver_removes_meanwhile_is_no_reason_to_refuse(
    folder: ObjectFolder,
) -> None:
    """A driver that removes an ended job removes the probe."""
    real, removals = ObjectFolder.create, iter([True])

    def create(folder: ObjectFolder, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        is_new = real(folder, name, data, after)
        if next(removals, False):
            folder.delete([name])
        return is_new

    with mock.patch.object(ObjectFolder, "create", create):
        _storage(folder).make("checkpoint_dir")
    assert list(folder.names()) == ["creates.probe"]


def test_a_store_that_lets_two_drivers_commit_is_refused(folder: ObjectFolder) -> None:
    with (
        mock.patch.object(ObjectFolder, "create", return_value=True),
        pytest.raises(OptionsError, match=r"--savepoint_path: the store at .* ignores"),
    ):
        _storage(folder).make("savepoint_path")


@pytest.mark.parametrize(
    ("url", "settings", "problem"),
    [
        ("s3://box/folder", (("endpoint", "http://127.0.0.1:9"), ("region", "x")), "could not"),
        ("s3://box/folder", (("nonsense", "1"),), "could not open s3://box/folder"),
    ],
)
def test_a_store_that_cannot_be_reached(
    url: str,
    settings: tuple[tuple[str, str], ...],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "some")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "some")
    with pytest.raises(CheckpointStorageError, match=problem):
        _storage(ObjectFolder(url, settings)).make("checkpoint_dir")


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://box/folder", "AWS_ENDPOINT"),
        ("s3://box/folder", "AWS_ENDPOINT_URL"),
        ("s3://box/folder", "AWS_ENDPOINT_URL_S3"),
    ],
)
def test_endpoints_of_stores_are_read_from_the_environment(
    url: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS; nobody listens there."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "some")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "some")
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with pytest.raises(CheckpointStorageError, match=r"127\.0\.0\.1:9"):
        # Another folder for each, since clients are cached.
        _storage(ObjectFolder(f"{url}/{variable}")).names()


def test_settings_of_s3_are_for_s3_alone() -> None:
    """A pipeline may read from one store, and have its checkpoint in another one."""
    folder = ObjectFolder("gs://box/folder", (("region", "x"), ("access_key_id", "y")))
    assert folder._store is not None
