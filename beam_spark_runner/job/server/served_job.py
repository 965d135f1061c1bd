"""One job of the server, from the client's Run until it is dropped, after its end."""

import contextlib
import sys
import threading
from collections.abc import Callable

from apache_beam.portability.api import beam_job_api_pb2, metrics_pb2
from apache_beam.runners.runner import PipelineState
from google.protobuf import struct_pb2

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.job.export.prometheus import JobMetrics
from beam_spark_runner.job.files.identity import folder_of
from beam_spark_runner.job.prepare.prepare import PreparedJob, check_streams
from beam_spark_runner.job.run.control import JobControl
from beam_spark_runner.job.run.job import Job
from beam_spark_runner.job.server.preparing import Preparing
from beam_spark_runner.job.server.refusals import JobHasEndedError
from beam_spark_runner.job.server.staging_area import StagingArea
from beam_spark_runner.job.watching.record import JobRecord
from beam_spark_runner.job.watching.stream_watch import StepWatermarks
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.recovery.savepoint_copy import NothingCommittedError
from beam_spark_runner.spark.session.handle import SessionHandle

OpenSession = Callable[[RunnerConfig], SessionHandle]
_BYTES_OF_A_STEP = 500
"""Of the objects that are kept for each step, without its name: an entry of a dict, watermarks."""


class ServedJob:
    """A job, which is prepared and then waits in the queue; until it begins, its state is STOPPED.

    Threads: any; one calls ``prepare``, and one ``run``.

    Args:
        job_id: The id of the job.
        name: The job name that the client sent.
        title: See ``JobRecord``.
        coded_options: The options that the client sent, a serialised Struct.
        coded_pipeline: The serialised pipeline that the client sent.
        files: The files that the client has staged, which are deleted at the end of the job.
        waiting_bytes: See the attribute.

    What is kept after the end is serialised: parsed messages of protobuf occupy several times
    their size, and a part of one keeps all of it.

    Attributes:
        record: The states and messages, from the beginning.
        control: Requests to cancel or drain it, in each of its states.
        preparing: How far its preparation is.
        waiting_bytes: The estimated memory of the job before its end, in bytes.
    """

    def __init__(
        self,
        job_id: str,
        *,
        name: str,
        title: str,
        coded_options: bytes,
        coded_pipeline: bytes,
        files: StagingArea,
        waiting_bytes: int,
    ) -> None:
        self.job_id = job_id
        self.name = name
        self.coded_pipeline = coded_pipeline
        self.waiting_bytes = waiting_bytes
        self._coded_options = coded_options
        self._files = files
        self._bytes_of_names = sys.getsizeof(name)
        self._step_names: dict[TransformId, str] = {}
        self.record = JobRecord(self._step_names, job_id, title)
        self.record.change_state(PipelineState.STOPPED)
        self.control = JobControl()
        self.preparing = Preparing(self.control)
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
    def kept_bytes(self) -> int:
        """The estimated memory of all that is stored after the job's end, in bytes."""
        return (
            sum(map(len, (self.coded_pipeline, self._coded_options, self._coded_metrics)))
            + self._bytes_of_names
            + self.record.events.size_bytes
        )

    @property
    def options(self) -> struct_pb2.Struct:
        """The options that the client sent."""
        return struct_pb2.Struct.FromString(self._coded_options)

    def prepare(self, compile_: Callable[[], PreparedJob], limit_s: float) -> None:
        """Compile the pipeline; see ``Preparing.run``."""
        prepared = self.preparing.run(compile_, limit_s)
        plan = prepared.plan
        names = {id_: each.name for id_, each in plan.graph.transforms.items()}
        with self._lock:
            self._step_names |= names
            self._bytes_of_names += sum(
                _BYTES_OF_A_STEP + sys.getsizeof(id_) + sys.getsizeof(name)
                for id_, name in names.items()
            )
            self._prepared, self._is_streaming = prepared, plan.is_streaming
        self.preparing.end()

    def run(self, open_session: OpenSession) -> None:
        """Run the job, and return after its end. Its errors are in the record."""
        prepared = self._prepared
        assert prepared is not None
        self.record.change_state(PipelineState.STARTING)
        try:
            job = self._start(prepared, open_session)
            if job is not None:
                job.wait()
                self._coded_metrics = _metrics_of(job).SerializeToString()
                self._last_watermarks = job.watch.watermarks()
        finally:
            self._forget()

    def _start(self, prepared: PreparedJob, open_session: OpenSession) -> Job | None:
        with contextlib.ExitStack() as closing:
            try:
                session = open_session(prepared.config)
                closing.callback(session.close)
                job = Job(
                    prepared,
                    session,
                    folder=folder_of(prepared.job_id, prepared.config, session),
                    close_session=session.close,
                    record=self.record,
                    control=self.control,
                )
                with self._lock:
                    if self.control.is_to_drain:
                        job.drain()
                    job.start()
                    self._job = job
            except BaseException as error:
                self._end_with(error)
                return None
            closing.pop_all()
        return job

    def drop(self) -> None:
        """End the job, which was cancelled before it began."""
        self.record.end(PipelineState.CANCELLED)
        self._forget()

    def fail(self, error: BaseException) -> None:
        """End the job, which cannot be prepared or started, with an error."""
        self._end_with(error)
        self._forget()

    def _end_with(self, error: BaseException) -> None:
        self.record.messages.fail(error)
        self.record.end(PipelineState.FAILED)

    def _forget(self) -> None:
        """Drop the plan, which may have megabytes, and all else that clients do not query later."""
        with self._lock:
            self._prepared = self._job = None
        self.preparing.end()
        self._files.remove()
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

    def drain(self) -> None:
        """See ``Job.drain``. A job that waits in the queue is drained as soon as it begins.

        Raises:
            UnsupportedFeatureError: The pipeline runs in batch.
        """
        self.preparing.wait()
        with self._lock:
            if self._prepared is None:  # it has ended
                return
            self._check_streams("draining")
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

    def save(self, path: str) -> int:
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
        return job.save(path)

    def _check_streams(self, wanted: str) -> None:
        self.preparing.wait()
        check_streams(wanted, self.job_id, is_streaming=self._is_streaming)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the job's end; return whether it has ended in time."""
        return self._ended.wait(timeout_s)

    def measured(self) -> JobMetrics | None:
        """Return the job, with the name under which its metrics are served; None: not running."""
        with self._lock:
            job, prepared = self._job, self._prepared
        if job is None or prepared is None:
            return None
        # --job_name comes first, since Beam's own client names all jobs "job".
        return JobMetrics(prepared.config.job_name or self.name, job)

    def metrics(self) -> beam_job_api_pb2.MetricResults:
        """Return the metrics so far; after the end, those of the whole run."""
        with self._lock:
            job = self._job
        if job is not None:
            return _metrics_of(job)
        return beam_job_api_pb2.MetricResults.FromString(self._coded_metrics)


def _metrics_of(job: Job) -> beam_job_api_pb2.MetricResults:
    parse = metrics_pb2.MonitoringInfo.FromString
    # Beam's Job API has no call for watermarks; as metrics, clients of any SDK can read them.
    watermarks = job.watch.watermark_gauges()
    return beam_job_api_pb2.MetricResults(
        attempted=[*map(parse, job.attempted()), *watermarks],
        committed=[*map(parse, job.tally.committed), *watermarks],
    )
