import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.recovery.batch_manifest import (
    BatchManifest,
    StoredPart,
    commits,
    work_folder,
)
from beam_spark_runner.recovery.batch_start import (
    BatchStart,
    CrashLoopError,
    SparkClient,
    deaths_without_progress,
)
from beam_spark_runner.recovery.finishes import Finish
from beam_spark_runner.recovery.manifest import FencedError, IncompatibleCheckpointError, fence_name
from tests.unit.recovery.files import Files


class Work:
    """Folders in memory; see ``WorkFolders``."""

    def __init__(self) -> None:
        self.folders: dict[str, list[str]] = {}

    def names(self, folder: str) -> Iterable[str]:
        return self.folders.get(folder, ())

    def remove(self, folder: str) -> None:
        self.folders.pop(folder, None)


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def work() -> Work:
    return Work()


def commit(start: BatchStart, **changes: object) -> BatchManifest:
    last = start.manifest
    mine = dataclasses.replace(last, commit=last.commit + 1, **changes)  # type: ignore[arg-type]
    return start.commit(mine)


def test_a_start_continues_from_the_newest_commit(files: Files, work: Work) -> None:
    first = BatchStart(files, work, "plan")
    assert (first.number, first.manifest.commit) == (1, 0)
    commit(first, done={0: (b"m",)})
    commit(first, done={0: (b"m",), 1: ()})
    second = BatchStart(files, work, "plan")
    assert second.number == 2
    assert second.manifest == BatchManifest(
        commit=2, fence=2, plan="plan", done={0: (b"m",), 1: ()}
    )
    with pytest.raises(FencedError):
        commit(first)
    with pytest.raises(FencedError):
        first.check_fence()
    second.check_fence()
    commit(second)


def test_another_plan_is_refused_and_nothing_is_touched(files: Files, work: Work) -> None:
    commit(BatchStart(files, work, "plan"))
    before = dict(files.files)
    with pytest.raises(IncompatibleCheckpointError):
        BatchStart(files, work, "another")
    assert files.files == before


def test_files_of_runs_that_no_kept_manifest_names_are_removed(files: Files, work: Work) -> None:
    start = BatchStart(files, work, "plan")
    for run in range(1, 6):
        work.folders[work_folder(run)] = []
        part = StoredPart(run=run, attempts=(), size_bytes=0)
        commit(start, outputs={run: (part,)})
    assert start.sweep(range(1, 6)) == {1, 2, 3}
    assert sorted(work.folders) == [work_folder(4), work_folder(5)]
    assert [name for name in files.names() if name.endswith(".manifest")] == [
        commits().name_of(4),
        commits().name_of(5),
    ]
    BatchStart(files, work, "plan")
    assert start.sweep(range(1, 6)) == frozenset()  # it is fenced off
    assert len(work.folders) == 2


def die(files: Files, work: Work, times: int = 1) -> None:
    for _ in range(times):
        BatchStart(files, work, "plan")


def test_three_starts_may_end_at_one_place(files: Files, work: Work) -> None:
    die(files, work, 3)
    with pytest.raises(CrashLoopError, match="3 starts of this job have ended"):
        BatchStart(files, work, "plan")
    assert BatchStart(files, work, "plan", tries_again=True).number == 4


def test_deaths_are_counted_since_the_last_progress(files: Files, work: Work) -> None:
    assert deaths_without_progress(files, work) == 0
    for expected in (1, 2):
        die(files, work)
        assert deaths_without_progress(files, work) == expected
    BatchStart(files, work, "plan").stop()
    assert deaths_without_progress(files, work) == 0
    die(files, work, 2)
    assert deaths_without_progress(files, work) == 2
    commit(BatchStart(files, work, "plan"))
    assert deaths_without_progress(files, work) == 0


def test_each_finished_partition_is_progress(files: Files, work: Work) -> None:
    names: list[str] = []
    work.folders[work_folder(1)] = names
    for partition in range(5):
        die(files, work, 2)
        names.append(Finish(partition, 9, 1).record_name)
        names.append(Finish(partition, 9, 2).record_name)
    die(files, work, 3)
    with pytest.raises(CrashLoopError, match="with 5 partitions of the next Spark job finished"):
        BatchStart(files, work, "plan")


def test_each_commit_is_progress(files: Files, work: Work) -> None:
    for _ in range(4):
        die(files, work, 2)
        commit(BatchStart(files, work, "plan"))


def test_a_start_that_ended_in_order_has_not_died(files: Files, work: Work) -> None:
    for _ in range(8):
        BatchStart(files, work, "plan").stop()


class Away(Files):
    """Storage of which one call fails, once: before or after it has had its effect."""

    def __init__(self, nth: int, *, has_effect: bool) -> None:
        super().__init__()
        self._nth, self._has_effect = nth, has_effect
        self.calls = 0

    def _call(self, work: Callable[[], Any]) -> Any:
        self.calls += 1
        if self.calls == self._nth:
            if self._has_effect:
                work()
            raise CheckpointStorageError("there", "away")
        return work()

    def names(self) -> Any:
        return self._call(super().names)

    def read(self, name: str) -> Any:
        return self._call(lambda: Files.read(self, name))

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> Any:
        return self._call(lambda: Files.create(self, name, data, after))


def again(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except CheckpointStorageError:
        return work()


@pytest.mark.parametrize("has_effect", [False, True])
def test_a_start_outlasts_storage_that_is_away(*, work: Work, has_effect: bool) -> None:
    nth, calls = 0, 1
    while nth < calls:
        nth += 1
        files = Away(0, has_effect=has_effect)
        commit(BatchStart(files, work, "plan"))
        BatchStart(files, work, "plan", client=client(2))
        files.calls, files._nth = 0, nth
        start = BatchStart(files, work, "plan", outlast=again)
        calls = files.calls
        assert (start.number, start.manifest.commit, start.previous) == (3, 1, (client(2),))
        # No fence counts as a start that has died.
        assert [name for name in Files.names(files) if name.endswith(".fence")][-1:] == [
            fence_name(3)
        ]
    assert nth > 5
    with pytest.raises(CheckpointStorageError):
        BatchStart(Away(1, has_effect=has_effect), work, "plan")


def client(number: int) -> SparkClient:
    return SparkClient("app-1", f"session {number}", f"beam-job-{number}")


def test_clients_that_have_died_are_known_to_later_starts(files: Files, work: Work) -> None:
    first = BatchStart(files, work, "plan", client=client(1))
    assert first.previous == ()
    BatchStart(files, work, "plan")  # its Spark jobs have ended with it
    third = BatchStart(files, work, "plan", client=client(3))
    assert third.previous == (client(1),)
    commit(third)
    assert BatchStart(files, work, "plan").previous == (client(1), client(3))


def test_clients_that_have_ended_in_order_have_left_nothing(files: Files, work: Work) -> None:
    BatchStart(files, work, "plan", client=client(1)).stop()
    BatchStart(files, work, "plan", client=client(2)).rest()
    assert BatchStart(files, work, "plan").previous == ()


def test_starts_that_have_failed_are_counted_wherever_they_ran(files: Files, work: Work) -> None:
    for number in range(3):
        BatchStart(files, work, "plan", client=client(number)).rest()
    with pytest.raises(CrashLoopError):
        BatchStart(files, work, "plan", client=client(3))
    start = BatchStart(files, work, "plan", tries_again=True)
    commit(start)
    for _ in range(4):
        start = BatchStart(files, work, "plan", tries_again=True)
    start.sweep(())
    assert not [name for name in files.names() if name.endswith(".idle")]


def test_few_fences_are_left(files: Files, work: Work) -> None:
    for _ in range(6):
        (start := BatchStart(files, work, "plan")).stop()
        start.sweep(())
    start = BatchStart(files, work, "plan")
    start.sweep(())
    assert [name for name in files.names() if name.endswith(".fence")] == list(
        map(fence_name, (4, 5, 6, 7))
    )
