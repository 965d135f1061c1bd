"""The folder in which bounded jobs of programs run, one after another.

It has the ``submission`` of the present job, which names the job, and a subfolder for each job: its
manifests, fences, end and output. No other job has that name. So a driver that sleeps while its job
ends and the next one begins changes nothing in the folder of the next one. Only the submission has
one name for all jobs: a driver that sleeps between a look at it and its removal removes that of the
next job, of which a later start then says that its submission is missing.

A subfolder exists only after a submission has named its job, and is removed only when the job is
over. Jobs of earlier versions have no subfolder: their name is empty.
"""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from beam_spark_runner.recovery.batch_manifest import commit_in, commits, work_folder
from beam_spark_runner.recovery.batch_start import (
    ENDED,
    FILES,
    PROBE,
    SUBMISSION,
    WorkFolders,
    idle_in,
    stopped_in,
)
from beam_spark_runner.recovery.commit import DeletingStorage, numbers_in
from beam_spark_runner.recovery.formats import SUBMISSIONS
from beam_spark_runner.recovery.manifest import (
    IncompatibleCheckpointError,
    checked_fields,
    fence_in,
)

EXCLUSION_PROBE = "creates.probe"
"""The file by which starts see whether an object store creates a file only once."""

_FOLDER = re.compile(r"job-(?P<job>[0-9a-f]{32})")
_LOST = (
    "--checkpoint_dir has the files of a job that has begun, but not what the job runs. Restore "
    "the missing file, or remove the folder to start from the beginning"
)


class JobFolders(WorkFolders, Protocol):
    """A folder with the submission of a job, or the subfolder of a job."""

    @property
    def storage(self) -> DeletingStorage:
        """The files in it. A subfolder that was removed has none, and raises a FencedError if
        a file is created there, unless it is one of an object store.
        """
        ...

    def folders(self) -> Iterable[str]:
        """Return the names of its subfolders."""
        ...

    def of_job(self, job: str) -> "JobFolders":
        """Return the subfolder of a job; this folder if the name of the job is empty."""
        ...


def folder_name(job: str) -> str:
    """Return the name of the subfolder of a job."""
    return f"job-{job}"


def job_in(content: bytes) -> str:
    """Return the name of the job that a submission names.

    Raises:
        CorruptManifestError: The submission is damaged.
        IncompatibleCheckpointError: Another version of this package has written it in another
            format.
    """
    return str(checked_fields(content, SUBMISSION, SUBMISSIONS)["job"])


class EndedJob(NamedTuple):
    """A job that has ended, and still has files.

    Attributes:
        job: Its name.
        metrics: Its metrics: serialised MonitoringInfos.
    """

    job: str
    metrics: tuple[bytes, ...]


def ended_job(root: JobFolders) -> EndedJob | None:
    """Return the job that has ended, and still has files; None: there is none.

    Raises:
        IncompatibleCheckpointError: A job has begun, but its submission is missing.
        CorruptManifestError: The submission is damaged.
    """
    names = root.storage.names()
    if SUBMISSION in names:
        job = job_in(root.storage.read(SUBMISSION))
        return _ended(root, job) if _has_ended(root, job) else None
    if ENDED in names:
        return _ended(root, "")
    for job in _jobs(root):
        if _has_ended(root, job):
            return _ended(root, job)
        _check_not_begun(root, job)
    return None


def _ended(root: JobFolders, job: str) -> EndedJob:
    coded = json.loads(root.of_job(job).storage.read(ENDED))
    return EndedJob(job, tuple(map(bytes.fromhex, coded)))


def is_over(root: JobFolders, job: str) -> bool:
    """Whether a job had ended before a start claimed it, which is then to withdraw.

    Args:
        root: The folder of the submission.
        job: The name of the job, of which the caller has claimed the highest fence.
    """
    # The end is created first and removed last: if it is missing while the submission is still
    # there afterwards, it has not been there before.
    if _has_ended(root, job):
        return True
    return not _is_submitted(root, job)


def remove_if_empty(root: JobFolders, job: str) -> None:
    """Remove the subfolder of a job that is over, which a start has made again."""
    if job and not root.of_job(job).storage.names():
        root.remove(folder_name(job))


def remove_ended(root: JobFolders, job: str) -> None:
    """Remove the files of a job that has ended; its end is the last one."""
    own = root.of_job(job)
    # The manifests are removed after the folders whose numbers they know.
    for run in range(1, max(numbers_in(own.storage, commits()), default=0) + 2):
        own.remove(work_folder(run))
    own.remove(FILES)
    own.remove(PROBE)
    names = [name for name in own.storage.names() if name not in (ENDED, SUBMISSION)]
    own.storage.delete(sorted(names, key=lambda name: (fence_in(name) is not None, name)))
    # Another start may have removed the submission, and that of the next job may be there.
    if _is_submitted(root, job):
        root.storage.delete([EXCLUSION_PROBE, SUBMISSION])
    own.storage.delete([ENDED])
    if job:
        root.remove(folder_name(job))


class Leftovers:
    """What drivers of earlier jobs have created after their jobs were over.

    It is found before a job is submitted, and removed after it was. If it were found afterwards,
    this job might be over, and that of a later one would be among it.

    Args:
        root: The folder of the submission.
    """

    def __init__(self, root: JobFolders) -> None:
        self._root = root
        self._jobs = _jobs(root)
        self._names = list(filter(_is_of_job, root.storage.names()))

    def remove(self) -> None:
        """Remove it, after another job was submitted than those that have left it."""
        for job in self._jobs:
            self._root.remove(folder_name(job))
        if not self._names:
            return
        numbers = map(commit_in, self._names)
        for run in range(1, max(filter(None, numbers), default=0) + 2):
            self._root.remove(work_folder(run))
        self._root.storage.delete(self._names)


def _is_of_job(name: str) -> bool:
    """Whether a file is of a job without a subfolder."""
    kinds = (commit_in, fence_in, stopped_in, idle_in)
    return name == ENDED or any(kind(name) is not None for kind in kinds)


def _jobs(root: JobFolders) -> list[str]:
    matches = map(_FOLDER.fullmatch, root.folders())
    return sorted(match["job"] for match in matches if match is not None)


def _has_ended(root: JobFolders, job: str) -> bool:
    return ENDED in root.of_job(job).storage.names()


def _is_submitted(root: JobFolders, job: str) -> bool:
    return SUBMISSION in root.storage.names() and job_in(root.storage.read(SUBMISSION)) == job


def _check_not_begun(root: JobFolders, job: str) -> None:
    """Check that a job without a submission has no fences: they are removed before it."""
    has_fences = any(map(fence_in, root.of_job(job).storage.names()))
    if has_fences and SUBMISSION not in root.storage.names():  # else it has just begun
        raise IncompatibleCheckpointError((f"{SUBMISSION} is missing",), _LOST)
