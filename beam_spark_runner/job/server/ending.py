"""The record and the end of a job that a server stores: ends are durable before clients hear."""

import contextlib
import time
from collections.abc import Callable

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import CheckpointStorageError, PipelineError
from beam_spark_runner.core.rendering import MAX_TRACEBACK_LENGTH, message_of
from beam_spark_runner.job.event_store.event_replay import replay
from beam_spark_runner.job.event_store.job_event_store import JobEventStore
from beam_spark_runner.job.server.job_forms import EndedJob, SubmittedJob
from beam_spark_runner.job.server.stored_job import StoredJob
from beam_spark_runner.job.watching.record import JobRecord, StateChange
from beam_spark_runner.recovery.batch_start import CrashLoopError
from beam_spark_runner.recovery.begun_writes import UnknownTableWriteError
from beam_spark_runner.recovery.epoch_writes import UnknownEpochWriteError
from beam_spark_runner.recovery.manifest import CorruptManifestError, IncompatibleCheckpointError
from beam_spark_runner.scheduling.patience import retry_while_unavailable
from beam_spark_runner.storage.mounted_folder import NotDurableError

_RECORDS_WITHIN_S = 5.0
_MENDABLE = (
    *(CheckpointStorageError, NotDurableError, CorruptManifestError),
    *(IncompatibleCheckpointError, UnknownTableWriteError, UnknownEpochWriteError),
)


class Ending:
    """Stores the states, messages and end of one job.

    Threads: any; one calls ``begin``.

    Args:
        stored: The job.
        submitted: Its submission.
        record: Its states so far.

    Attributes:
        stored, submitted: See the arguments.
    """

    def __init__(self, stored: StoredJob, submitted: SubmittedJob, record: JobRecord) -> None:
        self.stored = stored
        self.submitted = submitted
        self._record = record
        self._events: JobEventStore | None = None

    def replay(self) -> None:
        """Show what happened to the job on earlier servers."""
        self._record.replay(replay(self.stored.root, self._record.messages.warn))

    def begin(self, pause: Callable[[float], None]) -> int:
        """Begin a start: record what happens to the job on this server, unless it is already.

        Args:
            pause: Sleeps for so many seconds, or raises if the job is to end.

        Returns:
            The number of the start.

        Raises:
            CheckpointStorageError: The folder cannot be read, for two minutes.
        """
        warn = self._record.messages.warn
        start = retry_while_unavailable(self.stored.next_start, time.monotonic, warn, pause)
        if self._events is None:
            self._record.messages.number_start(start)
            self._events = self.stored.open_events(start, warn)
            self._record.record_in(self._events)
        return start

    def suspend(self) -> None:
        """Record what has happened so far, and no more."""
        if self._events is not None:
            self._events.close(timeout_s=_RECORDS_WITHIN_S)

    def remove(self, state: str = PipelineState.CANCELLED) -> None:
        """Remove everything but the end; see ``StoredJob.remove``. Errors are logged."""
        if self._events is not None:
            with contextlib.suppress(OSError):  # of what is removed with the rest
                self._events.close(clear=True)
        self.stored.remove(state)

    def end(self, state: str, error: BaseException | None = None, metrics: bytes = b"") -> str:
        """Store the last state, and remove everything else of the job.

        Args:
            state: The last state.
            error: Why it has failed.
            metrics: The last metrics, a serialised MetricResults.

        Returns:
            The last state: another one if an end was stored before.
        """
        try:
            state = retry_while_unavailable(
                lambda: self._store_end(state, error, metrics),
                time.monotonic,
                self._record.messages.warn,
                time.sleep,
            )
        except CheckpointStorageError as problem:
            self._record.messages.warn(
                f"the end of the job cannot be stored, so that the next start of the job server "
                f"continues it: {problem}"
            )
            self.suspend()
            return state
        self.remove(state)
        return state

    def cancel(self) -> bool:
        """Store that the job is cancelled, before it is: no later server continues it.

        Returns:
            Whether it is stored.
        """
        try:
            self._store_end(PipelineState.CANCELLED, None, b"")
        except CheckpointStorageError as problem:
            self._record.messages.warn(f"that the job is cancelled is not stored yet: {problem}")
            return False
        return True

    def stored_end(self) -> EndedJob | None:
        """Return the end that another server has stored, or a cancellation; None: there is none.

        Raises:
            CheckpointStorageError: The folder cannot be read.
        """
        try:
            return self.stored.stored_end()
        except CorruptManifestError:
            return None

    def known_end(self) -> EndedJob | None:
        """As ``stored_end``, but None if the folder cannot be read."""
        try:
            return self.stored_end()
        except CheckpointStorageError:
            return None

    def should_keep(self, error: BaseException, *, has_run: bool) -> bool:
        """Whether an error says nothing about the job, so that the next server continues it.

        Args:
            error: The error with which the job has ended on this server.
            has_run: Whether the job has begun to run on it.
        """
        if isinstance(error, _MENDABLE):
            return True
        if has_run or isinstance(error, (CrashLoopError, PipelineError)):
            return False
        try:
            return self.stored.has_commits()
        except CheckpointStorageError:
            return True

    def _store_end(self, state: str, error: BaseException | None, metrics: bytes) -> str:
        text = "" if error is None else message_of(error, MAX_TRACEBACK_LENGTH)
        states = (*self._record.states.events(), StateChange(state, time.time()))
        ended = EndedJob(states=states, error=text, coded_metrics=metrics)
        return self.stored.store_end(self.submitted, ended).states[-1].state
