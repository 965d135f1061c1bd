"""A bounded job that a later start can continue: its folder, its submission, and its end."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.core.ids import SegmentId, TransformId
from beam_spark_runner.driving.clock import Clock
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.run_context import RunMetrics, RunSettings
from beam_spark_runner.driving.segment_loop import run_plan
from beam_spark_runner.driving.session import Session
from beam_spark_runner.driving.stored_segments import StoredSegments, Surroundings
from beam_spark_runner.job.files import stored_submission
from beam_spark_runner.job.files.job_folder import JobFolderAt
from beam_spark_runner.job.files.stored_files import with_fetched_files, with_stored_files
from beam_spark_runner.job.files.stored_submission import Submission
from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.control import JobControl
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.users_own import users_own_options
from beam_spark_runner.plan.fingerprint import fingerprint
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.batch_manifest import commit_in, commits
from beam_spark_runner.recovery.batch_start import (
    ENDED,
    FILES,
    SUBMISSION,
    BatchStart,
    remove_ended,
)
from beam_spark_runner.recovery.commit import newest
from beam_spark_runner.recovery.manifest import FencedError
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.storage.folder_at import settings_of_tasks
from beam_spark_runner.storage.urls import is_url

_LOGGER = logging.getLogger(__name__)
_LOOKS_EVERY_S = 10.0


class JobRecovery:
    """One start of a job.

    Threads: those of the job, one at a time.

    Args:
        config: The options of the job, with ``--checkpoint_dir``.
    """

    def __init__(self, config: RunnerConfig) -> None:
        assert config.checkpoint_dir is not None
        root = config.checkpoint_dir
        root = root if is_url(root) else str(Path(root).absolute())
        self._folder = JobFolderAt(root, settings_of_tasks(root, config.store_settings))
        self._storage = self._folder.storage
        self._restart = config.restart
        self._start: BatchStart | None = None
        self._segments = 0  # how many the plan has
        self._is_fenced = False
        self._ended = threading.Event()
        self._metrics: tuple[bytes, ...] | None = None  # of a job that is done already
        self.began_s = 0.0

    @property
    def is_done(self) -> bool:
        """Whether an earlier start has run the job to its end."""
        return self._metrics is not None

    def begun_writes(self, plan: Plan) -> frozenset[TransformId]:
        """Return the steps whose writes of tables earlier starts have begun, or made.

        Args:
            plan: The plan of the submission.
        """
        begun = {
            segment
            for manifest in newest(self._storage, commits())
            for segment in (*manifest.begun, *manifest.written)
        }
        return frozenset(
            each.table_write
            for each in plan.segments
            if each.table_write is not None and int(each.id) in begun
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
        self.began_s = time.time()
        if ENDED in names:
            self._metrics = remove_ended(self._storage, self._folder)
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
        own = Submission(
            pipeline=self._with_stored_files(pipeline) if is_new else pipeline,
            options=users_own_options(options),
            main_classes=prepared.main_classes,
            versions=stored_submission.versions_of(_spark_of(session)),
            began_s=self.began_s,
        )
        if is_new and self._storage.create(SUBMISSION, stored_submission.encode(own)):
            return None  # else another start was faster
        stored = stored_submission.decode(self._storage.read(SUBMISSION), SUBMISSION)
        stored_submission.check_alike(stored, own)
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
        if not any(each.dependencies for each in pipeline.components.environments.values()):
            return pipeline
        try:
            return with_fetched_files(pipeline, self._folder.make(FILES), scratch())
        except OSError as error:
            raise CheckpointStorageError(self._folder.place(FILES), str(error)) from error

    def run(
        self,
        plan: Plan,
        settings: RunSettings,
        cluster: Cluster,
        tally: RunMetrics,
        clock: Clock,
        control: JobControl,
        cancel: Callable[[], None],
    ) -> None:
        """Run what earlier starts have not run; see ``run_plan``.

        Args:
            plan: The plan of the submission.
            settings: How it runs.
            cluster: Where it runs.
            tally: Gets its metrics.
            clock: Of this machine.
            control: Ends the job if another start has taken it over.
            cancel: Cancels the Spark jobs that run.

        Raises:
            RunnerError: See ``BatchStart`` and ``run_plan``.
        """
        if self._metrics is not None:
            _LOGGER.warning("an earlier start has run this job to its end: nothing is left to do")
            tally.accepted[SegmentId(0)] = self._metrics
            return
        self._segments = len(plan.segments)
        start = self._start = BatchStart(
            self._storage,
            self._folder,
            fingerprint(plan),
            tries_again=self._restart == "resume",
        )
        watch = threading.Thread(
            target=self._watch, args=(start, control, cancel), name="beam-fence", daemon=True
        )
        watch.start()

        def wait(seconds: float) -> None:
            start.check_fence()
            control.wait(seconds)
            control.check()

        with ThreadPoolExecutor(1, "beam-sweep") as background:
            store = StoredSegments(
                plan,
                cluster,
                start,
                self._folder,
                Surroundings(
                    clock=clock,
                    wait=wait,
                    background=background,
                    on_continue=settings.on_continue,
                ),
            )
            try:
                with contextlib.closing(store):
                    run_plan(plan, settings, cluster, tally, clock, store)
            except FencedError:
                self._is_fenced = True
                raise

    def finish(
        self, warn: Callable[[str], None], *, has_succeeded: bool, is_cancelled: bool
    ) -> None:
        """End this start: remove the files of a job that is done.

        Args:
            warn: Is called with what users should know of the files of a job that is not done.
            has_succeeded: Whether the job is done.
            is_cancelled: Whether it was cancelled.

        Raises:
            CheckpointStorageError: The folder cannot be read or written.
        """
        self._ended.set()
        start = self._start
        if start is None or self._is_fenced:
            return
        if has_succeeded:
            start.end()
            return
        if is_cancelled:
            start.stop()
        done = f"{len(start.manifest.done)} of {self._segments} Spark jobs"
        warn(
            f"the same command continues after {done}, with the code that the first start has "
            f"stored in {self._folder.root}"
        )

    def _watch(self, start: BatchStart, control: JobControl, cancel: Callable[[], None]) -> None:
        while not self._ended.wait(_LOOKS_EVERY_S):
            try:
                start.check_fence()
            except FencedError as error:
                control.end_with(error)
                cancel()
                return
            except CheckpointStorageError as error:
                _LOGGER.debug("the fence cannot be read: %s", error)


def _spark_of(session: Session) -> str:
    if isinstance(session, SessionHandle):
        return str(session.version).partition(".")[0]
    return "none"
