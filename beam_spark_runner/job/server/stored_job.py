"""One job in ``--jobs_dir``: its files, which are those of ``stored_jobs``."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.job.event_store.event_files import last_start
from beam_spark_runner.job.event_store.job_event_store import JobEventStore, open_event_store
from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.job.files.job_folder import JobFolderAt
from beam_spark_runner.job.files.shard_places import owner_of
from beam_spark_runner.job.prepare.continued_streams import default_checkpoint
from beam_spark_runner.job.server.job_forms import (
    EndedJob,
    SubmittedJob,
    decode_ended,
    encode_ended,
    encode_submitted,
)
from beam_spark_runner.job.server.server_fence import ServerFence
from beam_spark_runner.job.server.staging_area import StagingArea
from beam_spark_runner.options.server_options import (
    DEFAULT_EVENT_BUFFER_BYTES,
    DEFAULT_EVENT_FLUSH_S,
)
from beam_spark_runner.recovery.batch_manifest import commit_in
from beam_spark_runner.recovery.batch_start import MAX_STARTS, deaths_without_progress
from beam_spark_runner.recovery.checkpoint_subfolder import subfolder_in
from beam_spark_runner.recovery.commit import highest_fence, last_owner
from beam_spark_runner.recovery.manifest import CorruptManifestError, FencedError
from beam_spark_runner.recovery.savepoint_copy import pins
from beam_spark_runner.recovery.stream_start import DRAINS
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.folder_at import folder_at

_LOGGER = logging.getLogger(__name__)


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

    def store_submission(self, job: SubmittedJob, versions: Mapping[str, str]) -> None:
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
        self._storage.delete(self._names_of_tries())

    def forget_tries(self) -> None:
        """As ``end_tries``, but errors are logged."""
        with self._logging_errors():
            self.end_tries()

    def store_end(self, job: SubmittedJob, ended: EndedJob) -> EndedJob:
        """Store the end of the job, unless one is stored already.

        Returns:
            The end that is stored.
        """
        name = f"{self._name}.ended"
        if self._storage.create(name, encode_ended(job, ended)):
            return ended
        return self.stored_end() or ended

    def check_server(self) -> None:
        """Check that this server may run the job.

        Raises:
            FencedError: A later server has claimed the folder.
        """
        self._fence.check()

    def stored_end(self) -> EndedJob | None:
        """Return the end of the job, if it is stored."""
        name = f"{self._name}.ended"
        data = self._storage.read_if_there(name)
        return decode_ended(data, name)[1] if data else None

    def note_drain(self) -> None:
        """Store that a client has drained the job, a stream, before the client gets an answer."""
        storage = self.folder.storage
        storage.make_folder()
        storage.create(DRAINS, b"")

    def remove(self, state: str = "") -> None:
        """Remove everything but the end; the submission comes last. Errors are logged.

        Args:
            state: The last state; empty: there is none. The checkpoint of a stream that has
                failed stays.
        """
        with self._logging_errors():
            self.folder.storage.remove()
            if state != PipelineState.FAILED:
                self._remove_checkpoint()
            self._storage.delete([*self._names_of_tries(), f"{self._name}.files"])
            self._storage.delete([f"{self._name}.job"])

    def remove_end(self) -> None:
        """Remove the end of a job that has ended long ago. Errors are logged."""
        with self._logging_errors():
            self._remove_checkpoint()
            self._storage.delete([f"{self._name}.ended"])

    def _remove_checkpoint(self) -> None:
        """Remove the checkpoint that the server has chosen, unless others use it by now."""
        place = default_checkpoint(self.location)
        checkpoint = CheckpointStorage(folder_at(place), place)
        if not checkpoint.exists():
            return
        is_own = last_owner(checkpoint) in (None, owner_of(self.location))
        if not is_own or subfolder_in(checkpoint):
            _LOGGER.warning("%s stays: another job or program has continued from it", place)
        elif pins(checkpoint.names()):
            _LOGGER.warning("%s stays: a pipeline begins with it as with a savepoint", place)
        else:
            checkpoint.remove()

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

    def _names_of_tries(self) -> list[str]:
        return [f"{self._name}.try-{number}" for number in range(1, MAX_STARTS + 1)]
