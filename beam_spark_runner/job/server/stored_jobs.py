"""``--jobs_dir``: the jobs of a server that its next start continues.

The folder has small files of each job, named by the job's number and id, next to each other so that
one listing finds all jobs:

    000000000007-0123456789ab.files         the client stages files; there is no job yet
    000000000007-0123456789ab.job           the submission: the job exists
    000000000007-0123456789ab.try-2         a server compiles the job for the second time
    000000000007-0123456789ab.ended         how it has ended, and what is known of it then
    000000000003.server                     the third server has claimed the folder

Everything else is in the subfolder ``0123456789ab``: the files that the client has staged, and what
the job's Spark jobs have stored; the checkpoint of a stream whose client has named no folder is in
``checkpoints/0123456789ab``. A job that has a submission and no end is not over.
"""

import itertools
import logging
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.job.files.identity import new_job_id
from beam_spark_runner.job.server.job_forms import (
    EndedJob,
    SubmittedJob,
    decode_ended,
    decode_submitted,
)
from beam_spark_runner.job.server.server_fence import ServerFence
from beam_spark_runner.job.server.staging_area import store_url
from beam_spark_runner.job.server.stored_job import Recording, StoredJob
from beam_spark_runner.recovery.batch_start import (
    MAX_STARTS,
    CrashLoopError,
)
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    IncompatibleCheckpointError,
)
from beam_spark_runner.storage.folder_at import folder_at
from beam_spark_runner.storage.urls import is_url

_LOGGER = logging.getLogger(__name__)
_OPTION = "jobs_dir"
_NAME = re.compile(r"(?P<number>\d{12})-(?P<id>[0-9a-f]{12})\.(?P<kind>files|job|ended|try-\d+)")
_HIDDEN = re.compile(r"\.\d{12}[-.].+\.[0-9a-f]+")
"""What a server that was killed has left of a file that it created; see ``MountedFolder``."""
_READS_AT_ONCE = 32
_OTHER_VERSIONS = (
    "the job was stored by other versions, and this job server does not continue it. Nothing of it "
    "is removed: a server of those versions continues it"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """A job that an earlier server has stored.

    Attributes:
        stored: The job.
        submitted: Its submission.
        ended: How it has ended. None: it is not over.
        tries: How many servers have begun to compile it, and ended before they had done it.
        deaths: How many of its last starts have died without progress.
        differences: The versions with which it was stored, if this server has others.
    """

    stored: StoredJob
    submitted: SubmittedJob
    ended: EndedJob | None = None
    tries: int = 0
    deaths: int = 0
    differences: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """The last state; empty: the job is not over."""
        return "" if self.ended is None else self.ended.states[-1].state

    @property
    def is_suspect(self) -> bool:
        """Whether it is given up if this server dies, too, while it runs without progress."""
        return max(self.tries, self.deaths) == MAX_STARTS - 1

    def check(self) -> None:
        """Check whether this server can continue the job.

        Raises:
            IncompatibleCheckpointError: Other versions have stored it.
            CrashLoopError: The attempt to compile it has ended several servers.
        """
        if self.differences:
            raise IncompatibleCheckpointError(self.differences, _OTHER_VERSIONS)
        if self.tries >= MAX_STARTS:
            raise CrashLoopError(self.tries, 0, 0)


class StoredJobs:
    """All jobs of one server. If another one claims the folder, this one runs none any more.

    Threads: any.

    Args:
        place: The value of ``--jobs_dir``.
        versions: The versions of this server; see ``encode_submitted``.
        recording: When states and messages are written. None: by default.

    Raises:
        OptionsError: The folder cannot be used.
    """

    def __init__(
        self, place: str, versions: Mapping[str, str], recording: Recording | None = None
    ) -> None:
        self._root = store_url(_OPTION, place) if is_url(place) else str(Path(place).absolute())
        self._recording = recording or Recording()
        self._versions = versions
        self._storage = CheckpointStorage(folder_at(self._root), self._root)
        try:
            if not is_url(self._root):  # it has pickled code, and the values of options
                Path(self._root).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._storage.make(_OPTION)
        except (CheckpointStorageError, OSError) as error:
            raise OptionsError(_OPTION, f"{place} cannot be used: {error}") from error
        self._fence = ServerFence(self._storage)
        self._numbers = itertools.count(1)

    def new_job(self) -> StoredJob:
        """Return a new job, of which nothing is stored yet.

        Raises:
            FencedError: A later server has claimed the folder.
        """
        self._fence.check()
        return self._job(next(self._numbers), new_job_id())

    def _job(self, number: int, job_id: str) -> StoredJob:
        return StoredJob(self._root, number, job_id, self._fence, self._recording)

    def store_submission(self, stored: StoredJob, job: SubmittedJob) -> None:
        """See ``StoredJob.store_submission``."""
        stored.store_submission(job, self._versions)

    def claim_and_read(self) -> Sequence[FoundJob]:
        """Claim the folder, and read the jobs that earlier servers have stored, in their order.

        What is left of those that were never submitted, of those that have ended, and of files
        that were not complete, is removed.

        Raises:
            CheckpointStorageError: The folder cannot be read or written.
        """
        self._fence.claim()
        kinds: dict[tuple[int, str], set[str]] = {}
        names = self._storage.names()
        self._storage.delete([name for name in names if _HIDDEN.fullmatch(name)])
        for name in names:
            if match := _NAME.fullmatch(name):
                kinds.setdefault((int(match["number"]), match["id"]), set()).add(match["kind"])
        last = max((number for number, _ in kinds), default=0)
        self._numbers = itertools.count(last + 1)
        keys = sorted(kinds)
        with ThreadPoolExecutor(_READS_AT_ONCE) as threads:
            jobs = list(threads.map(self._read_job, keys, map(kinds.__getitem__, keys)))
        return [job for job in jobs if job is not None]

    def _read_job(self, key: tuple[int, str], kinds: set[str]) -> FoundJob | None:
        number, job_id = key
        stored = self._job(number, job_id)
        name = f"{number:012d}-{job_id}"
        # An earlier server may still end the job, and remove its submission.
        data = self._storage.read_if_there(f"{name}.job")
        if (ended := self._storage.read_if_there(f"{name}.ended")) or not data:
            ended_job = _ended_job(stored, ended, f"{name}.ended") if ended else None
            if kinds != {"ended"}:
                # An end that cannot be read may be that of a stream that has failed.
                stored.remove(
                    ended_job.state if ended_job else PipelineState.FAILED if ended else ""
                )
            return ended_job
        try:
            submitted, versions = decode_submitted(data, f"{name}.job")
        except (CorruptManifestError, IncompatibleCheckpointError) as error:
            _LOGGER.error("job %s cannot be continued: %s", job_id, error)
            return None
        return FoundJob(
            stored=stored,
            submitted=submitted,
            tries=sum(kind.startswith("try-") for kind in kinds),
            deaths=stored.deaths_without_progress(),
            differences=self._differences(versions),
        )

    def _differences(self, versions: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(
            f"{name}: was {stored_version}, is {self._versions.get(name, 'unknown')}"
            for name, stored_version in versions.items()
            if self._versions.get(name) != stored_version
        )


def _ended_job(stored: StoredJob, data: bytes, name: str) -> FoundJob | None:
    try:
        submitted, ended = decode_ended(data, name)
    except (CorruptManifestError, IncompatibleCheckpointError) as error:
        _LOGGER.error("how job %s has ended cannot be read: %s", stored.job_id, error)
        return None
    return FoundJob(stored=stored, submitted=submitted, ended=ended)
