"""Jobs of one folder, one after another, and drivers that wake up when their job is over."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest

from beam_spark_runner.recovery.batch_manifest import commits, work_folder
from beam_spark_runner.recovery.batch_start import ENDED, FILES, SUBMISSION, BatchStart
from beam_spark_runner.recovery.formats import SUBMISSIONS
from beam_spark_runner.recovery.job_folders import (
    EXCLUSION_PROBE,
    EndedJob,
    Leftovers,
    ended_job,
    folder_name,
    is_over,
    remove_ended,
    remove_if_empty,
)
from beam_spark_runner.recovery.job_submissions import (
    BegunJob,
    begun_job,
    decision_name,
    submission_name,
)
from beam_spark_runner.recovery.job_submissions import submit as submit_job
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    IncompatibleCheckpointError,
    with_digest,
)
from tests.unit.recovery.files import Files
from tests.unit.simulation.steps import Steps, pause

FIRST, SECOND = "1" * 32, "2" * 32


class Folder:
    """See ``JobFolders``; in memory. A folder exists if it was asked for."""

    def __init__(self) -> None:
        self.storage = Files()
        self.below: dict[str, Folder] = {}
        self.work: dict[str, list[str]] = {}

    def folders(self) -> Iterable[str]:
        return [*self.below, *self.work]

    def of_job(self, job: str) -> "Folder":
        return self.below.setdefault(folder_name(job), Folder()) if job else self

    def names(self, folder: str) -> Iterable[str]:
        return self.work.get(folder, ())

    def remove(self, folder: str) -> None:
        self.below.pop(folder, None)
        self.work.pop(folder, None)


@pytest.fixture
def root() -> Folder:
    return Folder()


def submit(root: Folder, job: str) -> BatchStart:
    """Submit a job, and start it. One without a name is of an earlier version."""
    content = with_digest({"job": job}, SUBMISSIONS)
    if job:
        assert submit_job(root.storage, job, content) == BegunJob(job, submission_name(job))
    else:
        assert root.storage.create(SUBMISSION, content)
    return start(root, job)


def start(root: Folder, job: str) -> BatchStart:
    folder = root.of_job(job)
    return BatchStart(folder.storage, folder, "plan", mark=f"{id(object())}")


def commit(start: BatchStart, **changes: Any) -> None:
    last = start.manifest
    start.commit(dataclasses.replace(last, commit=last.commit + 1, **changes))


@pytest.mark.parametrize("job", [FIRST, ""], ids=["in its subfolder", "of an earlier version"])
def test_the_end_is_the_last_file_to_be_removed(root: Folder, job: str) -> None:
    root.storage.create(EXCLUSION_PROBE, b"")
    driver = submit(root, job)
    assert ended_job(root) is None
    own = root.of_job(job)
    commit(driver, done={0: (b"m", b"n")})
    own.work = {name: [] for name in (work_folder(1), work_folder(2), FILES)}
    assert driver.end()

    class Dies(Exception):
        pass

    real = root.storage.delete
    of_job = {submission_name(job), decision_name(job)} if job else {SUBMISSION}

    def delete(names: Iterable[str]) -> None:
        if not of_job.isdisjoint(names := list(names)):
            raise Dies
        real(names)

    root.storage.delete = delete  # type: ignore[method-assign]
    with pytest.raises(Dies):
        remove_ended(root, job)
    assert {*own.storage.names()} - of_job == {ENDED}
    assert not own.work
    root.storage.delete = real  # type: ignore[method-assign]
    assert ended_job(root) == EndedJob(job, (b"m", b"n"))
    for name in sorted(of_job, reverse=True):  # the submission before its decision
        root.storage.delete([name])
        assert ended_job(root) == EndedJob(job, (b"m", b"n"))
    remove_ended(root, job)
    assert not root.storage.names()
    assert not root.below
    assert ended_job(root) is None


def test_a_driver_that_wakes_up_late_changes_nothing_of_the_next_job(root: Folder) -> None:
    late = submit(root, FIRST)
    second = start(root, FIRST)
    commit(second)
    assert not late.end()
    assert second.end()
    remove_ended(root, FIRST)
    driver = submit(root, SECOND)
    commit(driver)
    own = root.of_job(SECOND)
    before = dict(own.storage.files)
    # Whatever the first one does now, in the middle of what it did when it fell asleep:
    left = root.of_job(FIRST).storage
    left.create(commits().name_of(2), b"a manifest")
    left.create(ENDED, b"[]")
    remove_ended(root, FIRST)
    assert own.storage.files == before
    assert begun_job(root.storage) == BegunJob(SECOND, submission_name(SECOND))
    assert ended_job(root) is None
    commit(driver)


class PausingFiles(Files):
    """Files of a driver that pauses before each change, while others go on."""

    def __init__(self, files: Files) -> None:
        super().__init__()
        self.files = files.files

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        pause()
        return super().create(name, data, after)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            pause()
            super().delete([name])


def pausing(root: Folder) -> Folder:
    """Return a folder as such a driver sees it."""
    seen = Folder()
    seen.storage, seen.below, seen.work = PausingFiles(root.storage), root.below, root.work
    return seen


@pytest.mark.parametrize("job", [FIRST, ""], ids=["in its subfolder", "of an earlier version"])
def test_a_driver_that_pauses_while_it_removes_its_job_removes_nothing_of_the_next_one(
    job: str,
) -> None:
    paused_after, has_ended = 0, False
    while not has_ended:
        root = Folder()
        root.storage.create(EXCLUSION_PROBE, b"")
        assert submit(root, job).end()
        late = Steps(lambda: remove_ended(pausing(root), job))  # noqa: B023 (it ends in this turn)
        for _ in range(paused_after):
            late.go_on()
        has_ended = late.has_ended
        remove_ended(root, job)  # as the next start of the program
        next_driver = submit(root, SECOND)
        commit(next_driver)
        while not late.has_ended:
            late.go_on()
        assert begun_job(root.storage) == BegunJob(SECOND, submission_name(SECOND))
        assert not is_over(root, SECOND)
        assert ended_job(root) is None
        commit(next_driver)
        paused_after += 1
    assert paused_after > 4


def test_a_start_that_claims_a_job_that_is_over_withdraws(root: Folder) -> None:
    submit(root, FIRST)
    assert not is_over(root, FIRST)
    (first := start(root, FIRST)).end()
    assert is_over(root, FIRST)  # its files are being removed
    remove_ended(root, FIRST)
    late = start(root, FIRST)
    assert is_over(root, FIRST)
    submit(root, SECOND)
    assert is_over(root, FIRST)
    assert not is_over(root, SECOND)
    late.withdraw()
    remove_if_empty(root, FIRST)
    assert [*root.below] == [folder_name(SECOND)]
    assert not first.end()


def test_a_job_without_its_submission_is_refused(root: Folder) -> None:
    submit(root, FIRST)
    submission = root.storage.read(submission_name(FIRST))
    root.storage.delete([submission_name(FIRST)])
    with pytest.raises(IncompatibleCheckpointError, match="submission is missing"):
        ended_job(root)
    root.storage.create(submission_name(FIRST), submission)
    assert ended_job(root) is None


def test_a_job_that_begins_while_it_is_looked_for_is_not_refused(root: Folder) -> None:
    real = root.storage.names
    looks: list[Any] = []

    def names() -> Any:
        found = real()
        looks.append(found)
        if len(looks) == 1:
            submit(root, FIRST)
        return found

    root.storage.names = names  # type: ignore[method-assign]
    assert ended_job(root) is None
    assert len(looks) > 1


def test_what_drivers_of_earlier_jobs_have_left_is_removed(root: Folder) -> None:
    """Some have no subfolder, since an earlier version has run them."""
    for folder in (root, root.of_job(FIRST)):
        commit(start(root, "" if folder is root else FIRST))
        folder.work[work_folder(2)] = ["rows"]
    root.storage.create("of-others", b"")
    root.storage.create(decision_name(FIRST), b"begins")
    leftovers = Leftovers(root)
    submit(root, SECOND)
    leftovers.remove()
    own = decision_name(SECOND), submission_name(SECOND)
    assert sorted(root.storage.names()) == sorted(["of-others", *own])
    assert [*root.folders()] == [folder_name(SECOND)]


def test_a_job_that_begins_after_the_leftovers_were_found_is_none_of_them(root: Folder) -> None:
    leftovers = Leftovers(root)
    driver = submit(root, SECOND)
    leftovers.remove()
    commit(driver)


def test_a_damaged_submission_of_an_earlier_version_is_an_error(root: Folder) -> None:
    root.storage.create(SUBMISSION, b"torn")
    with pytest.raises(CorruptManifestError, match=SUBMISSION):
        ended_job(root)
