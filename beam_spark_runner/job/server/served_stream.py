"""A stream of a server that the next Spark application, or the next server, continues."""

import contextlib
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from apache_beam.runners.runner import PipelineState
from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError, StoredDataError
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.driving.session import Session
from beam_spark_runner.job.files.shard_places import existing_storage, owner_of
from beam_spark_runner.job.prepare.continued_streams import has_servers_checkpoint
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.control import JobControl
from beam_spark_runner.job.run.recovery import RunOutcome
from beam_spark_runner.job.server.ending import Ending
from beam_spark_runner.job.server.served_recovery import ServedRecovery, is_spark_lost
from beam_spark_runner.job.watching.record import JobRecord
from beam_spark_runner.observing.epoch_status import EpochStatus
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.batch_start import BatchStart, Outlast
from beam_spark_runner.recovery.commit import last_owner
from beam_spark_runner.recovery.stream_start import DRAINS, StreamStart, has_committed
from beam_spark_runner.scheduling.patience import retry_while_unavailable
from beam_spark_runner.spark.session.handle import SessionHandle

_LOGGER = logging.getLogger(__name__)


class ServedStreamRecovery(ServedRecovery):
    """See ``ServedRecovery``: the epochs of the job are in its ``--checkpoint_dir``.

    Args:
        config: The options of the job.
        ending: Stores the end of the job.
        began_s: When the client submitted the job, Unix time.
        control: Requests to cancel, suspend or drain it.
        has_lost_spark: Returns whether the Spark application of the job has ended.
        inform: Is called with what users may know.
        on_commit: Is called once this start works: it has committed an epoch, or none is due.
    """

    def __init__(
        self,
        config: RunnerConfig,
        ending: Ending,
        began_s: float,
        control: JobControl,
        has_lost_spark: Callable[[], bool],
        inform: Callable[[str], None],
        on_commit: Callable[[], None],
    ) -> None:
        super().__init__(ending, began_s, control, has_lost_spark, inform, on_commit, waits_s=0.0)
        self._config = config
        self._last_epoch: int | None = None
        self._has_worked = False
        self._has_noted_work = self._commit_is_due = False  # in the folder of the job

    @override
    def _new_start(self, plan: Plan, session: Session, tag: str, outlast: Outlast) -> BatchStart:
        start = StreamStart(self._storage, self._folder, outlast=outlast, mark=uuid.uuid4().hex)
        if DRAINS in outlast(self._storage.names):
            self._control.drain()
        return start

    @override
    def in_stream(self, settings: RunSettings, session: Session) -> RunSettings:
        if has_servers_checkpoint(self._config):
            self._check_executors(settings, session)
        self.has_run = True

        def on_epoch(status: EpochStatus) -> None:
            settings.on_epoch(status)
            self._note_work(status.epoch)

        def on_idle() -> None:
            settings.on_idle()
            self._note_work(None)

        return replace(
            settings,
            on_epoch=on_epoch,
            on_idle=on_idle,
            on_continue=lambda after: self._continues(settings, after),
        )

    def _note_work(self, epoch: int | None) -> None:
        """Note that this start works.

        Args:
            epoch: The number of the epoch that is committed; None: none is due.
        """
        start = self.start
        assert isinstance(start, StreamStart)
        is_first = epoch is not None and self._last_epoch is None
        if epoch is not None:
            self._last_epoch = epoch
        if self._has_noted_work and not (is_first or self._commit_is_due):
            return
        self._commit_is_due = self._commit_is_due or is_first
        try:
            if self._commit_is_due:
                start.note_commit()
                self._commit_is_due = False
            start.note_work()
            self._has_noted_work = True
        except CheckpointStorageError as error:  # the next epoch tries again
            _LOGGER.warning("that a stream works could not be stored: %s", error)
        if not self._has_worked:
            self._has_worked = True
            self._on_commit()

    @property
    @override
    def progress(self) -> str:
        if self._last_epoch is None:
            return "the last committed epoch"
        return f"epoch {self._last_epoch:,}"

    @override
    def _belongs_to_another(self) -> bool:
        """The fences of the checkpoint say so, of which the highest one has another owner."""
        place, server_folder = self._config.checkpoint_dir, self._config.server_folder
        assert place is not None
        assert server_folder is not None
        if self.is_fenced or not self._is_owner():
            return False  # by a start of this job, in the folder of the job
        try:
            storage = existing_storage(place, "checkpoint_dir", self._config.store_settings)
            return last_owner(storage) != owner_of(server_folder)
        except OptionsError:  # the folder is not there any more
            return True
        except CheckpointStorageError:
            return False

    @override
    def _should_keep(self, error: BaseException) -> bool:
        """As a program, which continues when the same command is run again."""
        if isinstance(error, StoredDataError):
            return True
        # Such as a --checkpoint_dir that is not mounted.
        return self._has_begun(error) or super()._should_keep(error)

    def _has_begun(self, error: BaseException) -> bool:
        if not isinstance(error, OptionsError):
            return False
        try:
            return has_committed(self._storage)
        except CheckpointStorageError:
            return True

    @override
    def _warn_of_what_remains(self, outcome: RunOutcome) -> None:
        if outcome.state != PipelineState.FAILED or not has_servers_checkpoint(self._config):
            return
        with contextlib.suppress(CheckpointStorageError):
            if has_committed(self._storage):
                place = self._config.checkpoint_dir
                outcome.warn(
                    f"a corrected pipeline continues after {self.progress} with "
                    f"--savepoint_path={place}; the folder stays as long as the job is known here"
                )


def recovery_of(
    prepared: PreparedJob,
    ending: Ending,
    control: JobControl,
    session: SessionHandle,
    record: JobRecord,
    on_commit: Callable[[], None],
) -> ServedRecovery:
    """Return the recovery of one start of a batch job or a stream.

    Args:
        prepared: The job.
        ending: Stores its end.
        control: Requests to cancel, suspend or drain it.
        session: The session in which it will run.
        record: Its states and messages.
        on_commit: Is called when it makes progress.
    """
    config, began_s = prepared.config, ending.submitted.began_s
    inform = record.messages.inform
    arguments = (ending, began_s, control, lambda: is_spark_lost(session), inform, on_commit)
    if prepared.plan.is_streaming:
        return ServedStreamRecovery(config, *arguments)
    return ServedRecovery(*arguments, config.previous_worker_recovery_timeout_s)


def for_start(prepared: PreparedJob, ending: Ending, control: JobControl) -> PreparedJob:
    """Begin a start of a job, and return the job for it; see ``PreparedJob.for_start``.

    A stream that has committed an epoch does not begin again, even if its checkpoint is away.

    Args:
        prepared: The job.
        ending: Records what happens to it.
        control: Requests to end it.

    Raises:
        CheckpointStorageError: The folder of the job cannot be read.
    """
    number = ending.begin(control.pause)
    prepared = prepared.for_start(number)
    if number == 1 or not prepared.plan.is_streaming:
        return prepared
    storage = ending.stored.folder.storage
    if retry_while_unavailable(
        lambda: has_committed(storage), time.monotonic, _LOGGER.warning, control.pause
    ):
        return replace(prepared, config=replace(prepared.config, restart="continue"))
    return prepared
