"""Which job begins in a folder of programs, if several programs start there at once.

A program submits its job as the file ``JOB.submission``, and the job begins with ``JOB.decision``.
No other job has these names. So a driver that sleeps while its job ends and the next one begins
removes nothing of the next one.

A program lists the submissions after it has created its own. So of two programs that submit at the
same time, one at least sees the submission of the other. It withdraws all others that have not
begun, by creating their decisions, which are created only once: a job either begins or is
withdrawn. If one has begun, it withdraws its own. So at most one job of a folder has begun and is
not over.

A submission that was withdrawn is removed before its decision is. So a program that creates its
decision late, when both are gone, notices that its submission is.

Earlier versions have submitted all jobs as one file, ``SUBMISSION``, which is still read.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from beam_spark_runner.recovery.batch_start import SUBMISSION
from beam_spark_runner.recovery.commit import DeletingStorage, Storage
from beam_spark_runner.recovery.formats import SUBMISSIONS
from beam_spark_runner.recovery.manifest import CorruptManifestError, checked_fields

_NAME = re.compile(r"(?P<job>[0-9a-f]{32})\.(?P<kind>submission|decision)")
BEGINS, _WITHDRAWN = b"begins", b"withdrawn"
"""What a decision may say."""


class BegunJob(NamedTuple):
    """A job that has begun.

    Attributes:
        job: Its name; empty: an earlier version has submitted it.
        submission: The name of the file with what it runs.
    """

    job: str
    submission: str


def submission_name(job: str) -> str:
    """Return the name of the submission of a job."""
    return f"{job}.submission"


def decision_name(job: str) -> str:
    """Return the name of the file that says whether a job begins."""
    return f"{job}.decision"


def job_in(content: bytes) -> str:
    """Return the name of the job that a submission names.

    Raises:
        CorruptManifestError: The submission is damaged.
        IncompatibleCheckpointError: Another version of this package has written it in another
            format.
    """
    return str(checked_fields(content, SUBMISSION, SUBMISSIONS)["job"])


def begun_job(storage: Storage) -> BegunJob | None:
    """Return the job that has begun and is not over; None: there is none.

    If its submission is missing when it is read, the job is over.

    Args:
        storage: The folder of the submissions.

    Raises:
        CorruptManifestError: A file that names or decides it is damaged.
        IncompatibleCheckpointError: See ``job_in``.
    """
    names = storage.names()
    if SUBMISSION in names:
        return BegunJob(job_in(storage.read(SUBMISSION)), SUBMISSION)
    for job in submitted_in(names):
        if decision_name(job) in names and _begins(storage, job):
            return BegunJob(job, submission_name(job))
    return None


def has_submissions(names: Iterable[str]) -> bool:
    """Whether a folder is one of bounded jobs, by the names of its files."""
    found = list(names)
    return SUBMISSION in found or bool(submitted_in(found))


def is_submitted(storage: Storage, job: str) -> bool:
    """Whether a job is not over: its submission is there."""
    names = storage.names()
    if submission_name(job) in names:
        return True
    return SUBMISSION in names and job_in(storage.read(SUBMISSION)) == job


def submit(storage: DeletingStorage, job: str, content: bytes) -> BegunJob | None:
    """Submit a job, and let it begin unless another one has.

    Args:
        storage: The folder of the submissions.
        job: The name of the job, which was never submitted: not even by an earlier call, after
            which it may be withdrawn at any time.
        content: Its submission.

    Returns:
        The job that has begun. None: the job was withdrawn, or another one has just ended; submit
        it again, under another name.
    """
    storage.create(submission_name(job), content)
    if not withdraw_others(storage, job):
        storage.delete([submission_name(job)])
        return begun_job(storage)
    if not storage.create(decision_name(job), BEGINS) and not _begins(storage, job):
        storage.delete([submission_name(job)])
        return None
    if submission_name(job) not in storage.names():
        storage.delete([decision_name(job)])
        return None
    return BegunJob(job, submission_name(job))


def withdraw_others(storage: DeletingStorage, job: str) -> bool:
    """Withdraw all submissions of other jobs that have not begun; return whether none has."""
    others = [other for other in submitted_in(storage.names()) if other != job]
    return all([_withdraw(storage, other) for other in others])


def remove_submission(storage: DeletingStorage, job: str) -> None:
    """Remove the submission of a job that is over."""
    if job:
        storage.delete([submission_name(job)])
        storage.delete([decision_name(job)])
    # Of an earlier version: that of the next job may be there.
    if SUBMISSION in storage.names() and job_in(storage.read(SUBMISSION)) == job:
        storage.delete([SUBMISSION])


def left_decisions(names: Iterable[str]) -> list[str]:
    """Return the names of decisions without a submission, which have no effect."""
    found = list(names)
    submitted = set(submitted_in(found))
    return [name for name in found if _job_of(name, "decision") not in (None, *submitted)]


def submitted_in(names: Iterable[str]) -> list[str]:
    """Return the jobs that were submitted, by the names of files."""
    return [job for name in names if (job := _job_of(name, "submission")) is not None]


def _job_of(name: str, kind: str) -> str | None:
    match = _NAME.fullmatch(name)
    return match["job"] if match is not None and match["kind"] == kind else None


def _withdraw(storage: DeletingStorage, job: str) -> bool:
    """Withdraw a submission; return False if its job has begun."""
    if not storage.create(decision_name(job), _WITHDRAWN) and _begins(storage, job):
        return False
    storage.delete([submission_name(job)])
    storage.delete([decision_name(job)])
    return True


def _begins(storage: Storage, job: str) -> bool:
    content = storage.read(decision_name(job))
    if content not in (BEGINS, _WITHDRAWN):
        raise CorruptManifestError(decision_name(job), "it has another content than it can have")
    return content == BEGINS
