"""A bounded job of a program that the same command continues: its submission, and its end."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import PipelineState
from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.driving.session import Session
from beam_spark_runner.job.files import stored_submission
from beam_spark_runner.job.files.job_folder import job_folder_of
from beam_spark_runner.job.files.stored_files import with_fetched_files, with_stored_files
from beam_spark_runner.job.files.stored_submission import Submission
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.recovery import JobRecovery, RunOutcome
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.users_own import users_own_options
from beam_spark_runner.recovery.batch_manifest import commit_in
from beam_spark_runner.recovery.batch_start import (
    ENDED,
    FILES,
    SUBMISSION,
    BatchStart,
    remove_ended,
    remove_leftovers,
)
from beam_spark_runner.recovery.manifest import FencedError
from beam_spark_runner.spark.session.handle import SessionHandle

_LOGGER = logging.getLogger(__name__)


class ProgramRecovery(JobRecovery):
    """See ``JobRecovery``.

    Args:
        config: The options of the job, with ``--checkpoint_dir``.
    """

    def __init__(self, config: RunnerConfig) -> None:
        folder = job_folder_of(config)
        assert folder is not None
        self._restart = config.restart
        super().__init__(
            folder,
            "checkpoint_dir",
            config.previous_worker_recovery_timeout_s,
            time.time(),
            tries_again=self._restart == "resume",
        )

    def submit(
        self,
        pipeline: beam_runner_api_pb2.Pipeline,
        options: PipelineOptions,
        prepared: PreparedJob,
        session: Session,
        scratch: Callable[[], Path],
    ) -> Submission | None:
        """Store what the job runs, or find what an earlier start has stored.

        Args:
            pipeline: The pipeline of the program.
            options: Its options.
            prepared: The pipeline, compiled.
            session: Where it runs.
            scratch: Makes a folder for copies of stored files, which exists until the job ends.

        Returns:
            What an earlier start has stored, which is to run. None: this is the first start.

        Raises:
            OptionsError: ``--restart`` does not allow it, or the folder is that of a stream.
            IncompatibleCheckpointError: The program has another pipeline, or other options.
            CheckpointStorageError: The folder cannot be read or written.
        """
        self._storage.make("checkpoint_dir")
        names = self._storage.names()
        if any(name.endswith(".manifest") and commit_in(name) is None for name in names):
            raise OptionsError(
                "checkpoint_dir", "has the checkpoint of a streaming pipeline; name another folder"
            )
        if ENDED in names:
            self.done_metrics = remove_ended(self._storage, self._folder)
            return None
        is_new = SUBMISSION not in names
        if not is_new and self._restart == "fresh":
            raise OptionsError(
                "restart",
                "an earlier start has begun this job in --checkpoint_dir; remove the folder, or "
                "use another one",
            )
        if is_new and self._restart == "resume":
            raise OptionsError("restart", "no job has begun in --checkpoint_dir")
        if is_new:
            remove_leftovers(self._storage, self._folder)
        submission = Submission(
            pipeline=self._with_stored_files(pipeline) if is_new else pipeline,
            options=users_own_options(options),
            main_classes=prepared.main_classes,
            versions=stored_submission.versions_of(_spark_of(session)),
            began_s=self.began_s,
        )
        if is_new and self._storage.create(SUBMISSION, stored_submission.encode(submission)):
            return None  # else another start was faster
        stored = stored_submission.decode(self._storage.read(SUBMISSION), SUBMISSION)
        stored_submission.check_alike(stored, submission)
        self.began_s = stored.began_s
        return replace(stored, pipeline=self._with_fetched_files(stored.pipeline, scratch))

    def _with_stored_files(
        self, pipeline: beam_runner_api_pb2.Pipeline
    ) -> beam_runner_api_pb2.Pipeline:
        try:
            return with_stored_files(pipeline, lambda: self._folder.make(FILES))
        except OSError as error:
            raise CheckpointStorageError(self._folder.place(FILES), str(error)) from error

    def _with_fetched_files(
        self, pipeline: beam_runner_api_pb2.Pipeline, scratch: Callable[[], Path]
    ) -> beam_runner_api_pb2.Pipeline:
        if not any(
            environment.dependencies for environment in pipeline.components.environments.values()
        ):
            return pipeline
        try:
            return with_fetched_files(pipeline, self._folder.make(FILES), scratch())
        except OSError as error:
            raise CheckpointStorageError(self._folder.place(FILES), str(error)) from error

    @override
    def _check_claimed(self, start: BatchStart) -> None:
        # An earlier start stores the end before it removes what this one would have found, and
        # removes the submission before the end.
        names = self._storage.names()
        if ENDED in names or SUBMISSION not in names:
            raise FencedError(start.number, start.number + 1)

    @override
    def _finish(self, outcome: RunOutcome) -> str:
        if self.start is None or self.is_fenced:
            return outcome.state
        if outcome.state == PipelineState.DONE:
            self.start.end()
            return outcome.state
        if outcome.state == PipelineState.CANCELLED or not self.has_run:
            self.start.stop()
        else:
            self.start.rest()
        outcome.warn(
            f"the same command continues after {self.progress}, with the code that the first start "
            f"has stored in {self._folder.root}"
        )
        return outcome.state


def _spark_of(session: Session) -> str:
    if isinstance(session, SessionHandle):
        return str(session.version).partition(".")[0]
    return "none"
