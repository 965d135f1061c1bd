"""Starts of a job server's streams, and the owners of the fences of their checkpoints."""

import dataclasses
from collections.abc import Iterable

import pytest

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.recovery.batch_start import try_once
from beam_spark_runner.recovery.commit import last_owner
from beam_spark_runner.recovery.driver_start import Checkpoints, DriverStart
from beam_spark_runner.recovery.stream_start import (
    StreamCrashLoopError,
    StreamStart,
    has_committed,
)
from tests.unit.recovery.drivers import VERSION, commit
from tests.unit.recovery.files import Files


class NoFolders:
    """Streams have no Spark jobs whose rows are kept."""

    def names(self, folder: str) -> Iterable[str]:
        return ()

    def remove(self, folder: str) -> None:
        raise AssertionError(folder)


def begin(files: Files, mark: str = "a") -> StreamStart:
    return StreamStart(files, NoFolders(), outlast=try_once, mark=mark)


def test_three_deaths_without_work_end_the_job() -> None:
    files = Files()
    for _ in range(3):
        begin(files)
    with pytest.raises(StreamCrashLoopError, match="3 starts of this stream have ended before"):
        begin(files)


def test_a_start_that_has_worked_does_not_count() -> None:
    files = Files()
    for _ in range(2):
        begin(files)
    begin(files).note_work()
    for _ in range(3):
        begin(files)
    with pytest.raises(StreamCrashLoopError):
        begin(files)


def test_notes_of_earlier_starts_are_removed() -> None:
    files = Files()
    for _ in range(20):
        start = begin(files)
        start.note_work()
        start.note_work()
    assert len(files.files) < 10
    assert not has_committed(files)
    start.note_commit()
    assert has_committed(files)


def driver(files: Files, owner: bytes, restart: str = "auto") -> DriverStart:
    checkpoints = Checkpoints(
        storage=files, lineage="main", restart=restart, key_groups=128, owner=owner
    )
    return DriverStart(checkpoints, VERSION, 1)


def test_a_fence_says_whose_it_is() -> None:
    files = Files()
    assert last_owner(files) is None
    driver(files, b"job 1")
    assert last_owner(files) == b"job 1"
    driver(files, b"")
    assert last_owner(files) == b""


def test_fresh_allows_what_the_same_job_has_committed() -> None:
    files = Files()
    commit(driver(files, b"job 1", "fresh"), files)
    assert driver(files, b"job 1", "fresh").manifest.epoch == 1
    for other in (b"job 2", b""):
        with pytest.raises(OptionsError, match="has committed 1 epochs"):
            driver(files, other, "fresh")


def test_commits_that_storage_refuses_are_counted() -> None:
    class Full(Files):
        is_full = False

        def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
            if self.is_full and name.endswith(".manifest"):
                raise CheckpointStorageError("folder", "it is full")
            return super().create(name, data, after)

    files, failures = Full(), []
    checkpoints = Checkpoints(
        storage=files,
        lineage="main",
        restart="auto",
        key_groups=128,
        on_failed_commit=lambda: failures.append(1),
    )
    start = DriverStart(checkpoints, VERSION, 1)
    commit(start, files)
    files.is_full = True
    for _ in range(2):
        with pytest.raises(CheckpointStorageError):
            start.commit(dataclasses.replace(start.manifest, epoch=2, parent=1))
    assert len(failures) == 2
