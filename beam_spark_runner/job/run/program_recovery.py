"""A bounded job of a program that the same command continues: its submission, and its end."""

import contextlib
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.runner import PipelineState
from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.driving.session import Session
from beam_spark_runner.job.files import stored_submission
from beam_spark_runner.job.files.job_folder import job_folder_of
from beam_spark_runner.job.files.stored_files import (
    store_files,
    with_fetched_files,
    with_names_of_files,
)
from beam_spark_runner.job.files.stored_submission import Submission
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.recovery import JobRecovery, RunOutcome
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.users_own import users_own_options
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.batch_manifest import commit_in
from beam_spark_runner.recovery.batch_start import FILES, BatchStart
from beam_spark_runner.recovery.checkpoint_subfolder import SUBFOLDER
from beam_spark_runner.recovery.job_folders import (
    Leftovers,
    ended_job,
    is_over,
    remove_ended,
    remove_if_empty,
)
from beam_spark_runner.recovery.job_submissions import begun_job, submit
from beam_spark_runner.recovery.manifest import FencedError, is_manifest
from beam_spark_runner.scheduling.patience import retry_while_unavailable
from beam_spark_runner.spark.session.handle import SessionHandle

_LOGGER = logging.getLogger(__name__)
_NEVER_WORKS = (PermissionError, NotADirectoryError, FileExistsError)
_Result = TypeVar("_Result")


class ProgramRecovery(JobRecovery):
    """See ``JobRecovery``.

    Args:
        config: The options of the job, with ``--checkpoint_dir``.
    """

    def __init__(self, config: RunnerConfig) -> None:
        folder = job_folder_of(config)
        assert folder is not None
        self._root, self._job = folder, ""  # ``submit`` finds or names the job
        self._own_jobs: set[str] = set()  # all that it has submitted, of which one begins at most
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
            CheckpointStorageError: The folder cannot be read or written, for two minutes.
        """
        self._outlast(self._make)
        ended = self._outlast(lambda: ended_job(self._root))
        if ended is not None:
            self.done_metrics, job = ended.metrics, ended.job
            self._outlast(lambda: remove_ended(self._root, job))
            return None
        pipeline, files = _with_names_of_files(pipeline)
        own = Submission(
            job="",
            pipeline=pipeline,
            options=users_own_options(options),
            main_classes=prepared.main_classes,
            versions=stored_submission.versions_of(_spark_of(session)),
            began_s=self.began_s,
        )
        leftovers = self._outlast(lambda: Leftovers(self._root))
        stored = self._outlast(lambda: self._submitted(own))
        self._job = stored.job
        self._folder = self._root.of_job(stored.job)
        self._storage = self._folder.storage
        self._outlast(lambda: self._store_files(files))
        if stored.job in self._own_jobs:
            self._outlast(leftovers.remove)
            return None
        self.began_s = stored.began_s
        stored_pipeline = self._outlast(lambda: self._with_fetched_files(stored.pipeline, scratch))
        return replace(stored, pipeline=stored_pipeline)

    def _make(self) -> None:
        """Make the folder, and check that it is of no stream."""
        storage = self._root.storage
        try:
            storage.make("checkpoint_dir")
        except CheckpointStorageError as error:
            if isinstance(error.__cause__, _NEVER_WORKS):
                raise OptionsError("checkpoint_dir", str(error)) from error
            raise
        names = storage.names()
        if SUBFOLDER in names or any(map(_is_of_stream, names)):
            raise OptionsError(
                "checkpoint_dir", "has the checkpoint of a streaming pipeline; name another folder"
            )

    def _submitted(self, own: Submission) -> Submission:
        """Submit the job, unless one has begun; return that which has begun."""
        storage = self._root.storage
        begun = begun_job(storage)
        while begun is None:
            if self._restart == "resume":
                raise OptionsError("restart", "no job has begun in --checkpoint_dir")
            # Also if this is called again, after an error: the first one may be withdrawn.
            job = uuid.uuid4().hex
            self._own_jobs.add(job)
            begun = submit(storage, job, stored_submission.encode(replace(own, job=job)))
        if begun.job in self._own_jobs:
            return replace(own, job=begun.job)
        stored = stored_submission.decode(storage.read(begun.submission), begun.submission)
        if self._restart == "fresh":
            raise OptionsError(
                "restart",
                "an earlier start has begun this job in --checkpoint_dir; remove the folder, or "
                "use another one",
            )
        stored_submission.check_alike(stored, own)
        return stored

    def _store_files(self, files: Mapping[str, Path]) -> None:
        """Store files that the first start may not have stored any more."""
        self._storage.make_folder()
        if not files:
            return
        try:
            store_files(files, self._folder.make(FILES))
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
    def begun_writes(self, plan: Plan) -> frozenset[TransformId]:
        find = super().begun_writes
        return self._outlast(lambda: find(plan))

    def _outlast(self, work: Callable[[], _Result]) -> _Result:
        """Do work of the storage that may be repeated; see ``retry_while_unavailable``."""
        return retry_while_unavailable(work, time.monotonic, _LOGGER.warning, time.sleep)

    @override
    def _check_claimed(self, start: BatchStart) -> None:
        if is_over(self._root, self._job):
            start.withdraw()
            remove_if_empty(self._root, self._job)
            raise FencedError(start.number, start.number + 1)

    @override
    def _finish(self, outcome: RunOutcome) -> str:
        start = self.start
        if start is None or self.is_fenced:
            return outcome.state
        if outcome.state == PipelineState.DONE:
            if self._outlast(start.end):
                self._outlast(lambda: remove_ended(self._root, self._job))
            return outcome.state
        with contextlib.suppress(FencedError):  # the job is over
            if outcome.state == PipelineState.CANCELLED or not self.has_run:
                start.stop()
            else:
                start.rest()
        outcome.warn(
            f"the same command continues after {self.progress}, with the code that the first start "
            f"has stored in {self._root.root}"
        )
        return outcome.state


def _is_of_stream(name: str) -> bool:
    return is_manifest(name) and commit_in(name) is None


def _with_names_of_files(
    pipeline: beam_runner_api_pb2.Pipeline,
) -> tuple[beam_runner_api_pb2.Pipeline, Mapping[str, Path]]:
    try:
        return with_names_of_files(pipeline)
    except OSError as error:
        raise CheckpointStorageError(str(error.filename), str(error)) from error


def _spark_of(session: Session) -> str:
    if isinstance(session, SessionHandle):
        return str(session.version).partition(".")[0]
    return "none"
