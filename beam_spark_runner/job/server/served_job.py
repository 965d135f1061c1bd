"""One job of the server, from the client's Run until it is dropped, after its end."""

import contextlib
import logging
import sys
import threading
from collections.abc import Callable

from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.runner import PipelineState
from google.protobuf import struct_pb2

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.job.export.prometheus import JobMetrics
from beam_spark_runner.job.files.identity import folder_of
from beam_spark_runner.job.prepare.prepare import PreparedJob, check_streams
from beam_spark_runner.job.run.control import JobCancelledError, JobControl
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.server.ending import Ending
from beam_spark_runner.job.server.job_forms import EndedJob, SubmittedJob
from beam_spark_runner.job.server.metric_results import metric_results
from beam_spark_runner.job.server.preparation import waiting_bytes_of
from beam_spark_runner.job.server.preparing import Preparing
from beam_spark_runner.job.server.refusals import JobHasEndedError, LostSparkError
from beam_spark_runner.job.server.served_recovery import ServedRecovery
from beam_spark_runner.job.server.served_stream import for_start, recovery_of
from beam_spark_runner.job.server.staging_area import StagingArea
from beam_spark_runner.job.server.stored_job import StoredJob
from beam_spark_runner.job.server.stored_jobs import StoredJobs
from beam_spark_runner.job.watching.record import JobRecord
from beam_spark_runner.job.watching.stream_watch import StepWatermarks
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.recovery.manifest import FencedError
from beam_spark_runner.recovery.savepoint_copy import NothingCommittedError
from beam_spark_runner.spark.session.handle import SessionHandle

_LOGGER = logging.getLogger(__name__)

OpenSession = Callable[[RunnerConfig], SessionHandle]
_SERVER_ENDS = "the job server ends"
_BYTES_OF_A_STEP = 500
"""Of the objects that are kept for each step, without its name: an entry of a dict, watermarks."""


class ServedJob:
    """A job, which is prepared and then waits in the queue; until it begins, its state is STOPPED.

    Threads: any; one calls ``prepare``, and one ``run``.

    Args:
        job_id: The id of the job.
        submitted: What the client has submitted.
        place: See the attribute.
        is_stored: Whether an earlier server has stored it.

    What is kept after the end is serialised: parsed messages of protobuf occupy several times
    their size, and a part of one keeps all of it.

    Attributes:
        submitted: What the client has submitted.
        record: The states and messages, from the beginning.
        control: Requests to cancel, suspend or drain it, in each of its states.
        preparing: How far its preparation is.
        waiting_bytes: The estimated memory of the job before its end, in bytes.
        place: Where its files are: a staging area, or the job in ``--jobs_dir`` if the client asks
            for recovery.
        continues_later: Whether it has failed on this server only, and the next one continues it.
    """

    def __init__(
        self,
        job_id: str,
        submitted: SubmittedJob,
        *,
        place: StagingArea | StoredJob,
        is_stored: bool = False,
    ) -> None:
        self.job_id = job_id
        self.submitted = submitted
        self.waiting_bytes = waiting_bytes_of(
            submitted.coded_pipeline, submitted.coded_options, submitted.name
        )
        self.place = place
        self._bytes_of_names = sys.getsizeof(submitted.name)
        self._step_names: dict[TransformId, str] = {}
        self.record = JobRecord(self._step_names, job_id, submitted.title)
        self.control = JobControl()
        self.preparing = Preparing(self.control)
        self.continues_later = False
        self._ending: Ending | None = None
        if is_stored:
            assert isinstance(place, StoredJob)
            self._ending = Ending(place, submitted, self.record)
        self._prepared: PreparedJob | None = None
        self._is_streaming = False
        self._job: Job | None = None
        self._coded_metrics = b""
        self._last_watermarks: dict[str, StepWatermarks] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()

    @property
    def has_ended(self) -> bool:
        """Whether its state is the last one."""
        return self._ended.is_set()

    @property
    def is_stored(self) -> bool:
        """Whether a later server continues the job, or knows how it has ended."""
        return self._ending is not None

    @property
    def kept_bytes(self) -> int:
        """The estimated memory of all that is stored after the job's end, in bytes."""
        return (
            len(self.submitted.coded_pipeline)
            + len(self.submitted.coded_options)
            + len(self._coded_metrics)
            + self._bytes_of_names
            + self.record.events.size_bytes
        )

    @property
    def options(self) -> struct_pb2.Struct:
        """The options that the client sent."""
        return struct_pb2.Struct.FromString(self.submitted.coded_options)

    def wait_in_queue(self) -> None:
        """Note that the job is new, or is to be continued, and waits until it may begin."""
        if self._ending is not None:
            self._ending.replay()
        self.record.change_state(PipelineState.STOPPED)

    def show_end(self, ended: EndedJob) -> None:
        """Show how a job has ended that ran on an earlier server."""
        self.record.replay_end(ended.states, ended.error)
        self._coded_metrics = ended.coded_metrics
        self.preparing.note_end()
        self._ended.set()

    def prepare(self, compile_: Callable[[], PreparedJob], limit_s: float) -> None:
        """Compile the pipeline; see ``Preparing.compile``."""
        prepared = self.preparing.compile(compile_, limit_s)
        plan = prepared.plan
        names = {id_: transform.name for id_, transform in plan.graph.transforms.items()}
        with self._lock:
            self._step_names |= names
            self._bytes_of_names += sum(
                _BYTES_OF_A_STEP + sys.getsizeof(id_) + sys.getsizeof(name)
                for id_, name in names.items()
            )
            self._prepared, self._is_streaming = prepared, plan.is_streaming
        self.preparing.note_end()

    @property
    def is_recoverable(self) -> bool:
        """Of a job that is prepared and has not ended: whether a later start can continue it."""
        prepared = self._prepared
        is_here = isinstance(self.place, StoredJob)
        return prepared is not None and is_here and prepared.can_be_continued

    def store(self, jobs: StoredJobs) -> None:
        """Store the submission, durably: from now on, a later server continues the job.

        Raises:
            CheckpointStorageError: The folder cannot be written.
        """
        assert isinstance(self.place, StoredJob)
        jobs.store_submission(self.place, self.submitted)
        self._ending = Ending(self.place, self.submitted, self.record)

    def store_cancel(self) -> None:
        """Store that the job is cancelled, if it is stored, before it is cancelled."""
        if self._ending is not None:
            self._ending.cancel()

    def remove_stored_end(self) -> None:
        """Remove what is stored of the job, which has ended long ago."""
        if self._ending is not None:
            self._ending.stored.remove_end()

    @property
    def may_be_continued(self) -> bool:
        """Whether the job is stored, or will be once it is prepared."""
        will_be = isinstance(self.place, StoredJob) and not self.record.has_begun
        return self.is_stored or (will_be and (self._prepared is None or self.is_recoverable))

    def run(self, open_session: OpenSession, on_progress: Callable[[], None]) -> None:
        """Run the job to its end, and call ``on_progress`` meanwhile. Errors are in the record."""
        try:
            self.record.change_state(PipelineState.STARTING)
            while self._run_on_one_spark(open_session, on_progress):
                self.record.change_state(PipelineState.STARTING)
        finally:
            self._release()

    def _run_on_one_spark(self, open_session: OpenSession, on_progress: Callable[[], None]) -> bool:
        """Run the job; return whether it is to continue on another Spark."""
        prepared = self._prepared
        assert prepared is not None
        with contextlib.ExitStack() as closing:
            recovery: ServedRecovery | None = None
            try:
                if self._ending is not None:
                    prepared = for_start(prepared, self._ending, self.control)
                session = open_session(prepared.config)
                closing.callback(session.close)
                if self._ending is not None:
                    recovery = recovery_of(
                        prepared, self._ending, self.control, session, self.record, on_progress
                    )
                job = Job(
                    prepared,
                    session,
                    folder=folder_of(prepared.job_id, prepared.config, session),
                    close_session=session.close,
                    record=self.record,
                    recovery=recovery,
                    control=self.control,
                )
                with self._lock:
                    if self.control.is_to_drain:
                        job.drain()
                    job.start()
                    self._job = job
            except BaseException as error:
                is_lost = isinstance(error, (LostSparkError, FencedError))
                if self._ending is not None and (is_lost or self.control.is_suspended):
                    self._suspend(str(error))
                elif isinstance(error, JobCancelledError):
                    self.drop()
                else:
                    self._end_with(error)
                return False
            closing.pop_all()
        job.wait()
        self._coded_metrics = _metrics_of(job).SerializeToString()
        self._last_watermarks = job.watch.watermarks()
        if job.is_over:
            if recovery is not None:
                self.continues_later = recovery.continues_later
                if recovery.end_elsewhere is not None and recovery.end_elsewhere.coded_metrics:
                    self._coded_metrics = recovery.end_elsewhere.coded_metrics
            return False
        if recovery is not None and recovery.starts_again:
            self.record.messages.warn(
                f"{recovery.why}: the job continues after {recovery.progress}"
            )
            return True
        self._suspend(str(job.error) if job.error is not None else _SERVER_ENDS)
        return False

    def _suspend(self, why: str) -> None:
        _LOGGER.info("%s is suspended: %s", self.job_id, why)
        if self._ending is not None:
            self._ending.suspend()
        self.record.suspend()

    def suspend(self) -> None:
        """End the job, which has not begun, without a last state: the next server runs it."""
        self._suspend(_SERVER_ENDS)
        self._release()

    def cancel_for_good(self) -> None:
        """Cancel for good a job that has failed on this server only."""
        if self._ending is not None and self._ending.cancel():
            self._ending.remove()
            self.continues_later = False

    def drop(self) -> None:
        """End the job, which was cancelled before it began."""
        self.cancel_for_good()
        self.record.end(PipelineState.CANCELLED)
        self._release()

    def fail(self, error: BaseException) -> None:
        """End the job, which cannot be prepared or started, with an error."""
        self._end_with(error)
        self._release()

    def _end_with(self, error: BaseException) -> None:
        state: str = PipelineState.FAILED
        if self._ending is not None:
            self.continues_later = self._ending.should_keep(error, has_run=False)
            if self.continues_later:
                self._ending.suspend()
            else:
                state = self._ending.end(state, error)
        if state == PipelineState.FAILED:
            self.record.messages.fail(error)
        self.record.end(state)

    def _release(self) -> None:
        """Drop the plan, which may have megabytes, and all else that clients do not query later."""
        with self._lock:
            self._prepared = self._job = None
        self.preparing.note_end()
        if self._ending is None:
            self.place.remove()
        self._ended.set()

    def cancel(self) -> None:
        """Cancel the job, which runs, or is being prepared or started.

        It returns after the end of a running job. A job that is being started finds the request
        when it begins to run.
        """
        self.preparing.cancel()
        with self._lock:
            job = self._job
        if job is not None:
            job.cancel()

    def suspend_running(self) -> None:
        """End the job as ``cancel`` does, once ``control`` says that it is to be suspended."""
        self.preparing.stop()
        with self._lock:
            job = self._job
        if job is not None:
            job.end_now()

    def drain(self) -> None:
        """See ``Job.drain``. A job that waits in the queue is drained as soon as it begins.

        Raises:
            UnsupportedFeatureError: The pipeline runs in batch.
            CheckpointStorageError: The request cannot be stored.
        """
        self.preparing.wait()
        with self._lock:
            if self._prepared is not None:
                self._check_streams("draining")
            elif not (self.continues_later and self._is_streaming):
                return  # it has ended, and not on this server only
            if self._ending is not None:
                self._ending.stored.note_drain()
            self.control.drain()
            if self._job is not None:
                self._job.drain()

    def watermarks(self) -> dict[str, StepWatermarks]:
        """See ``SparkPipelineResult.watermarks``; after the end, those of the last epoch.

        Raises:
            UnsupportedFeatureError: The pipeline runs in batch.
        """
        self._check_streams("watermarks of")
        with self._lock:
            job = self._job
        return self._last_watermarks if job is None else job.watermarks()

    def make_savepoint(self, path: str) -> int:
        """Make a savepoint; see ``SparkPipelineResult.savepoint``.

        Raises:
            UnsupportedFeatureError: The pipeline runs in batch.
            JobHasEndedError: The job has ended.
            NothingCommittedError: It has not begun to run, or has committed no epoch.
        """
        self._check_streams("a savepoint of")
        if self.record.has_last_state:
            raise JobHasEndedError(
                f"job {self.job_id} has ended; beam-spark-savepoint copies what it has committed "
                "in its --checkpoint_dir"
            )
        with self._lock:
            job = self._job
        if job is None:
            raise NothingCommittedError
        return job.make_savepoint(path)

    def _check_streams(self, purpose: str) -> None:
        self.preparing.wait()
        check_streams(purpose, self.job_id, is_streaming=self._is_streaming)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the job's end; return whether it has ended in time."""
        return self._ended.wait(timeout_s)

    def job_metrics(self) -> JobMetrics | None:
        """Return the job, with the name under which its metrics are served; None: not running."""
        with self._lock:
            job, prepared = self._job, self._prepared
        if job is None or prepared is None:
            return None
        # --job_name comes first, since Beam's own client names all jobs "job".
        return JobMetrics(prepared.config.job_name or self.submitted.name, job)

    def metrics(self) -> beam_job_api_pb2.MetricResults:
        """Return the metrics so far; after the end, those of the whole run."""
        with self._lock:
            job = self._job
        if job is not None:
            return _metrics_of(job)
        return beam_job_api_pb2.MetricResults.FromString(self._coded_metrics)


def _metrics_of(job: Job) -> beam_job_api_pb2.MetricResults:
    # Beam's Job API has no call for watermarks; as metrics, clients of any SDK can read them.
    return metric_results(job.attempted(), job.tally.committed, [*job.watch.watermark_gauges()])
