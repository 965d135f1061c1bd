"""Checkpoints of one folder, one after another, and drivers that wake up when theirs is removed."""

import pytest

from beam_spark_runner.recovery.checkpoint_subfolder import (
    SUBFOLDER,
    chosen_subfolder,
    subfolder_in,
)
from beam_spark_runner.recovery.manifest import fence_name, manifest_name
from tests.unit.recovery.files import Files


def test_all_starts_of_a_checkpoint_have_one_subfolder() -> None:
    files = Files()
    assert subfolder_in(files) == ""
    first = chosen_subfolder(files, "1")
    assert first
    assert chosen_subfolder(files, "2") == first == subfolder_in(files)


def test_of_two_first_starts_one_chooses() -> None:
    files = Files()
    real = files.create

    def create(name: str, data: bytes, after: object = ()) -> bool:
        real(SUBFOLDER, b"of the other start")
        return real(name, data)

    files.create = create  # type: ignore[method-assign]
    assert chosen_subfolder(files, "1") == "of the other start"


def test_the_next_checkpoint_in_a_folder_has_another_subfolder() -> None:
    files = Files()
    removed = chosen_subfolder(files, "1")
    files.delete([SUBFOLDER])
    assert chosen_subfolder(files, "2") != removed


@pytest.mark.parametrize("name", [fence_name(1), manifest_name("main", 3)])
def test_a_checkpoint_of_an_earlier_version_has_none(name: str) -> None:
    files = Files()
    files.create(name, b"")
    assert chosen_subfolder(files, "1") == ""
    assert list(files.names()) == [name]


def test_files_of_others_do_not_matter() -> None:
    files = Files()
    files.create("creates.probe", b"")
    files.create("README", b"")
    assert chosen_subfolder(files, "1")
