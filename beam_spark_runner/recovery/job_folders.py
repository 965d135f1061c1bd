"""The folder in which bounded jobs of programs run, one after another.

It has the submission of the present job, see ``job_submissions``, and a subfolder for each job: its
manifests, fences, end and output. No other job has their names. So a driver that sleeps while its
job ends and the next one begins changes nothing of the next one.

A subfolder exists only after its job has begun, and is removed only when the job is over. Jobs of
earlier versions have no subfolder: their name is empty.
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
    WorkFolders,
    idle_in,
    stopped_in,
)
from beam_spark_runner.recovery.commit import DeletingStorage, numbers_in
from beam_spark_runner.recovery.job_submissions import (
    begun_job,
    is_submitted,
    left_decisions,
    remove_submission,
    submission_name,
    withdraw_others,
)
from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError, fence_in

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
    begun = begun_job(root.storage)
    if begun is not None:
        return _ended(root, begun.job) if _has_ended(root, begun.job) else None
    if ENDED in root.storage.names():
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
    return not is_submitted(root.storage, job)


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
    names = [name for name in own.storage.names() if _is_of_job(name) and name != ENDED]
    own.storage.delete(sorted(names, key=lambda name: (fence_in(name) is not None, name)))
    withdraw_others(root.storage, job)  # whoever submits now does so again
    if is_submitted(root.storage, job):
        root.storage.delete([EXCLUSION_PROBE])
    remove_submission(root.storage, job)
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
        names = root.storage.names()
        self._names = [*filter(_is_of_job, names), *left_decisions(names)]

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


def _check_not_begun(root: JobFolders, job: str) -> None:
    """Check that a job without a submission has no fences: they are removed before it."""
    has_fences = any(map(fence_in, root.of_job(job).storage.names()))
    if has_fences and not is_submitted(root.storage, job):  # else it has just begun
        raise IncompatibleCheckpointError((f"{submission_name(job)} is missing",), _LOST)
