"""``--jobs_dir``: the jobs of a server that its next start continues.

The folder has small files of each job, named by the job's number and id, next to each other so that
one listing finds all jobs:

    000000000007-0123456789ab.files         the client stages files; there is no job yet
    000000000007-0123456789ab.job           the submission: the job exists
    000000000007-0123456789ab.try-2         a server compiles the job for the second time
    000000000007-0123456789ab.ended         how it has ended, and what is known of it then
    000000000003.server                     the third server has claimed the folder

Everything else is in the subfolder ``0123456789ab``: the files that the client has staged, and what
the job's Spark jobs have stored. A job that has a submission and no end is not over.
"""

import contextlib
import itertools
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.job.event_store.event_files import last_start
from beam_spark_runner.job.event_store.job_event_store import JobEventStore, open_event_store
from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.job.files.identity import new_job_id
from beam_spark_runner.job.files.job_folder import JobFolderAt
from beam_spark_runner.job.server.job_forms import (
    EndedJob,
    SubmittedJob,
    decode_ended,
    decode_submitted,
    encode_ended,
    encode_submitted,
)
from beam_spark_runner.job.server.server_fence import ServerFence
from beam_spark_runner.job.server.staging_area import StagingArea, store_url
from beam_spark_runner.options.server_options import (
    DEFAULT_EVENT_BUFFER_BYTES,
    DEFAULT_EVENT_FLUSH_S,
)
from beam_spark_runner.recovery.batch_manifest import commit_in
from beam_spark_runner.recovery.batch_start import (
    MAX_STARTS,
    CrashLoopError,
    deaths_without_progress,
)
from beam_spark_runner.recovery.commit import highest_fence
from beam_spark_runner.recovery.manifest import (
    CorruptManifestError,
    FencedError,
    IncompatibleCheckpointError,
)
from beam_spark_runner.storage.folder import Folder
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


@dataclass(frozen=True, slots=True)
class Recording:
    """When states and messages of jobs are written; see ``open_event_store``.

    Attributes:
        buffer_bytes: The size of the buffer.
        flush_interval_s: The longest time in the buffer.
    """

    buffer_bytes: int = DEFAULT_EVENT_BUFFER_BYTES
    flush_interval_s: float = DEFAULT_EVENT_FLUSH_S


class StoredJob:
    """One job in ``--jobs_dir``. Threads: any.

    Methods raise a ``CheckpointStorageError`` if the folder cannot be read or written.

    Attributes:
        job_id: The id of the job.
        location: The path or URL of its subfolder.
    """

    def __init__(
        self, root: str, number: int, job_id: str, fence: ServerFence, recording: Recording
    ) -> None:
        self.job_id = job_id
        self._fence = fence
        self._recording = recording
        self.location = f"{root}/{job_id}"
        self._storage = CheckpointStorage(folder_at(root), root)
        self._name = f"{number:012d}-{job_id}"

    @property
    def root(self) -> Folder:
        """Its subfolder."""
        return folder_at(self.location)

    @property
    def files(self) -> StagingArea:
        """Where the files are that the client stages."""
        return StagingArea(f"{self.location}/files", is_durable=True)

    @property
    def folder(self) -> JobFolderAt:
        """Where its Spark jobs store what they have made."""
        return JobFolderAt(self.location)

    def next_start(self) -> int:
        """Return the number of the next start of the job; that of the first one is 1.

        No earlier start has recorded events under this number, nor claimed the job with it. Makes
        the subfolder: one without a submission would not be found, and stay.

        Raises:
            FencedError: A later server has claimed the folder, and runs the job.
        """
        self._fence.check()
        self.folder.storage.make_folder()
        try:
            recorded = last_start(self.root)
        except OSError as error:
            raise CheckpointStorageError(self.location, str(error)) from error
        return max(highest_fence(self.folder.storage), recorded) + 1

    def open_events(self, start: int, warn: Callable[[str], None]) -> JobEventStore:
        """Begin to record the states and messages of a start; see ``open_event_store``."""
        return open_event_store(
            self.root,
            start,
            buffer_bytes=self._recording.buffer_bytes,
            flush_interval_s=self._recording.flush_interval_s,
            warn=warn,
        )

    def expect_files(self) -> None:
        """Note that the client stages files, which are removed if no submission follows."""
        self._storage.create(f"{self._name}.files", b"")

    def submit(self, job: SubmittedJob, versions: Mapping[str, str]) -> None:
        """Store the submission, durably: the job exists from now on.

        Raises:
            FencedError: A later server has claimed the folder, and may not have seen the job.
        """
        self._storage.create(f"{self._name}.job", encode_submitted(job, versions))
        try:
            self._fence.check()
        except FencedError:
            self._storage.delete([f"{self._name}.job"])
            raise
        self._storage.delete([f"{self._name}.files"])

    def begin_try(self, tries: int) -> None:
        """Note that the job is compiled, which might end this process."""
        self._storage.create(f"{self._name}.try-{tries}", b"")

    def end_tries(self) -> None:
        """Note that compiling the job has not ended this process."""
        self._storage.delete(self._tries())

    def forget_tries(self) -> None:
        """As ``end_tries``, but errors are logged."""
        with self._logging_errors():
            self.end_tries()

    def end(self, job: SubmittedJob, ended: EndedJob) -> EndedJob:
        """Store the end of the job, unless one is stored already.

        Returns:
            The end that is stored.
        """
        name = f"{self._name}.ended"
        if self._storage.create(name, encode_ended(job, ended)):
            return ended
        return self.ended() or ended

    def check_server(self) -> None:
        """Check that this server may run the job.

        Raises:
            FencedError: A later server has claimed the folder.
        """
        self._fence.check()

    def ended(self) -> EndedJob | None:
        """Return the end of the job, if it is stored."""
        name = f"{self._name}.ended"
        data = self._storage.read_if_there(name)
        return decode_ended(data, name)[1] if data else None

    def remove(self) -> None:
        """Remove everything but the end; the submission comes last. Errors are logged."""
        with self._logging_errors():
            self.folder.storage.remove()
            self._storage.delete([*self._tries(), f"{self._name}.files"])
            self._storage.delete([f"{self._name}.job"])

    def forget(self) -> None:
        """Remove the end of a job that has ended long ago. Errors are logged."""
        with self._logging_errors():
            self._storage.delete([f"{self._name}.ended"])

    def has_commits(self) -> bool:
        """Whether a Spark job of it was committed, whose rows would be lost with the job."""
        storage = self.folder.storage
        return storage.exists() and any(map(commit_in, storage.names()))

    def deaths_without_progress(self) -> int:
        """Return how many of its last starts have died where it is now; 0 if that is not known."""
        folder = self.folder
        try:
            return deaths_without_progress(folder.storage, folder) if folder.storage.exists() else 0
        except (CheckpointStorageError, CorruptManifestError):  # which its start meets, too
            return 0

    @contextlib.contextmanager
    def _logging_errors(self) -> Iterator[None]:
        try:
            yield
        except CheckpointStorageError as error:
            _LOGGER.warning(
                "what job %s has stored remains until the next start of the server: %s",
                self.job_id,
                error,
            )

    def _tries(self) -> list[str]:
        return [f"{self._name}.try-{each}" for each in range(1, MAX_STARTS + 1)]


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

    def new(self) -> StoredJob:
        """Return a new job, of which nothing is stored yet.

        Raises:
            FencedError: A later server has claimed the folder.
        """
        self._fence.check()
        return self._job(next(self._numbers), new_job_id())

    def _job(self, number: int, job_id: str) -> StoredJob:
        return StoredJob(self._root, number, job_id, self._fence, self._recording)

    def submit(self, stored: StoredJob, job: SubmittedJob) -> None:
        """See ``StoredJob.submit``."""
        stored.submit(job, self._versions)

    def found(self) -> Sequence[FoundJob]:
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
            jobs = list(threads.map(self._read, keys, map(kinds.__getitem__, keys)))
        return [job for job in jobs if job is not None]

    def _read(self, key: tuple[int, str], kinds: set[str]) -> FoundJob | None:
        number, job_id = key
        stored = self._job(number, job_id)
        name = f"{number:012d}-{job_id}"
        # An earlier server may still end the job, and remove its submission.
        data = self._storage.read_if_there(f"{name}.job")
        if (ended := self._storage.read_if_there(f"{name}.ended")) or not data:
            if kinds != {"ended"}:
                stored.remove()
            return _ended_job(stored, ended, f"{name}.ended") if ended else None
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
            f"{name}: was {before}, is {self._versions.get(name, 'unknown')}"
            for name, before in versions.items()
            if self._versions.get(name) != before
        )


def _ended_job(stored: StoredJob, data: bytes, name: str) -> FoundJob | None:
    try:
        submitted, ended = decode_ended(data, name)
    except (CorruptManifestError, IncompatibleCheckpointError) as error:
        _LOGGER.error("how job %s has ended cannot be read: %s", stored.job_id, error)
        return None
    return FoundJob(stored=stored, submitted=submitted, ended=ended)
