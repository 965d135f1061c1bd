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
    job_in,
    remove_ended,
    remove_if_empty,
)
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    IncompatibleCheckpointError,
    with_digest,
)
from tests.unit.recovery.files import Files

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
    """Submit a job, and start it."""
    assert root.storage.create(SUBMISSION, with_digest({"job": job}, SUBMISSIONS))
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

    def delete(names: Iterable[str]) -> None:
        if SUBMISSION in list(names):
            raise Dies
        real(names)

    root.storage.delete = delete  # type: ignore[method-assign]
    with pytest.raises(Dies):
        remove_ended(root, job)
    assert {*own.storage.names()} - {SUBMISSION, EXCLUSION_PROBE} == {ENDED}
    assert not own.work
    root.storage.delete = real  # type: ignore[method-assign]
    assert ended_job(root) == EndedJob(job, (b"m", b"n"))
    root.storage.delete([SUBMISSION])
    assert ended_job(root) == EndedJob(job, (b"m", b"n"))
    root.storage.create(SUBMISSION, with_digest({"job": job}, SUBMISSIONS))
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
    assert job_in(root.storage.read(SUBMISSION)) == SECOND
    assert ended_job(root) is None
    commit(driver)


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
    submission = root.storage.read(SUBMISSION)
    root.storage.delete([SUBMISSION])
    with pytest.raises(IncompatibleCheckpointError, match="submission is missing"):
        ended_job(root)
    root.storage.create(SUBMISSION, submission)
    assert ended_job(root) is None


def test_a_job_that_begins_while_it_is_looked_for_is_not_refused(root: Folder) -> None:
    real = root.storage.names
    looks: list[Any] = []

    def names() -> Any:
        found = real()
        if not looks:
            submit(root, FIRST)
        looks.append(found)
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
    leftovers = Leftovers(root)
    submit(root, SECOND)
    leftovers.remove()
    assert sorted(root.storage.names()) == ["of-others", SUBMISSION]
    assert [*root.folders()] == [folder_name(SECOND)]


def test_a_job_that_begins_after_the_leftovers_were_found_is_none_of_them(root: Folder) -> None:
    leftovers = Leftovers(root)
    driver = submit(root, SECOND)
    leftovers.remove()
    commit(driver)


def test_a_damaged_submission_is_an_error(root: Folder) -> None:
    root.storage.create(SUBMISSION, b"torn")
    with pytest.raises(CorruptManifestError, match=SUBMISSION):
        ended_job(root)
