"""All jobs of a server: prepared by clients, waiting for their turn, running, and ended."""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2
from google.protobuf import struct_pb2

from beam_spark_runner.core.errors import UnsupportedFeatureError
from beam_spark_runner.job.export.prometheus import JobMetrics
from beam_spark_runner.job.files.identity import new_job_id
from beam_spark_runner.job.prepare.continued_streams import for_server, is_continued_stream
from beam_spark_runner.job.prepare.environment_overrides import read_overrides
from beam_spark_runner.job.prepare.prepare import PreparedJob, prepare
from beam_spark_runner.job.run.control import JobCancelledError
from beam_spark_runner.job.server.client_options import by_name, read_options
from beam_spark_runner.job.server.job_queue import JobQueue
from beam_spark_runner.job.server.limited_call import LimitedCall
from beam_spark_runner.job.server.preparation import Preparation, area_of, check_room
from beam_spark_runner.job.server.refusals import (
    NotStagedError,
    ServerIsEndingError,
    UnknownIdError,
)
from beam_spark_runner.job.server.served_job import ServedJob
from beam_spark_runner.job.server.staging import StagedArtifacts, replace_artifacts
from beam_spark_runner.job.server.staging_area import StagingArea, open_staging_area
from beam_spark_runner.job.server.stored_job import Recording, StoredJob
from beam_spark_runner.job.server.stored_jobs import FoundJob, StoredJobs
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.server_options import ServerConfig
from beam_spark_runner.spark.session.handle import SessionHandle

MAX_ENDED = 200
"""The most ended jobs of which states and messages are stored; the oldest are dropped."""
MAX_BYTES_OF_ENDED = 256 << 20
"""The most memory of ended jobs, in bytes, unless one job alone needs more."""
_PREPARED_FOR_S = 3600.0  # the longest pause of a client before it stages a file or calls Run
_ENDING = "the job server is ending, and takes no more jobs"

OpenSession = Callable[[RunnerConfig, str], SessionHandle]
"""Opens a session for one job. Its second argument is the name of a Spark scheduler pool."""


class Jobs:
    """The jobs of one server. Threads: any.

    Args:
        config: The configuration of the server.
        open_session: See ``OpenSession``.
        versions: The versions with which jobs are stored; see ``stored_submission.versions_of``.

    Raises:
        OptionsError: ``--artifacts_dir`` or ``--jobs_dir`` cannot be written, or
            ``--environment_config`` is invalid.
    """

    def __init__(
        self,
        config: ServerConfig,
        open_session: OpenSession,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        read_overrides(config.environment_overrides)  # raises now rather than with the first job
        self._config = config
        self._open_session = open_session
        self._stored_jobs: StoredJobs | None = None
        if config.jobs_dir is not None:
            recording = Recording(config.event_buffer_bytes, config.event_flush_s)
            self._stored_jobs = StoredJobs(config.jobs_dir, versions or {}, recording)
        self._area = open_staging_area(config.artifacts_dir)
        self._preparations: dict[str, Preparation] = {}
        self._jobs: dict[str, ServedJob] = {}
        self._runs: dict[str, Future[str]] = {}  # the jobs' ids, by those of their preparations
        self._earlier_jobs: dict[str, FoundJob] = {}  # of earlier servers, in the queue
        self._queue = JobQueue(config.max_concurrent_jobs, self._run_from_queue, self._has_ended)
        self._ended_jobs: deque[ServedJob] = deque()  # in the order of their ends
        self._is_ending = False
        self.has_resumed = False  # read by other threads
        self._lock = threading.Lock()

    def resume(self) -> None:
        """Continue the jobs that earlier servers have stored, and show those that have ended.

        Raises:
            CheckpointStorageError: ``--jobs_dir`` cannot be read.
        """
        waiting = []
        for found in () if self._stored_jobs is None else self._stored_jobs.claim_and_read():
            submitted = found.submitted
            job = ServedJob(found.stored.job_id, submitted, place=found.stored, is_stored=True)
            answer: Future[str] = Future()
            answer.set_result(job.job_id)
            if found.ended is not None:
                job.show_end(found.ended)
            else:
                job.wait_in_queue()
                waiting.append(job)
            with self._lock:  # now that it has a state, which others ask for
                self._jobs[job.job_id] = job
                self._runs[submitted.preparation_id] = answer
                if found.ended is None:
                    self._earlier_jobs[job.job_id] = found
            if found.ended is not None:
                self._has_ended(job)
        suspects = {id_ for id_, found in self._earlier_jobs.items() if found.is_suspect}
        self._queue.add(waiting, suspects)
        self.has_resumed = True

    def prepare(self, request: beam_job_api_pb2.PrepareJobRequest) -> str:
        """Store a pipeline; return the id of the preparation, which is its staging token, too.

        Raises:
            OptionsError: An option is invalid.
            InvalidPipelineError: An ANYOF environment is invalid.
            ServerIsEndingError: The server accepts no more jobs.
            TooManyJobsError: As many jobs wait as ``--max_waiting_jobs`` or
                ``--max_waiting_bytes`` allows.
            PrepareTimeoutError: This takes longer than ``--prepare_timeout``.
            CheckpointStorageError: ``--jobs_dir`` cannot be written.
        """
        self._check_open()
        id_ = uuid.uuid4().hex
        call = LimitedCall(lambda: self._read_request(request, id_), self._config.prepare_timeout_s)
        preparation = call.result()
        with self._lock:
            waiting: list[Preparation | ServedJob] = [
                *self._preparations.values(),
                *(job for job in self._jobs.values() if not job.record.has_begun),
            ]
            check_room(preparation, waiting, self._config)
            self._preparations[id_] = preparation
        if isinstance(preparation.place, StoredJob) and not preparation.files.is_complete:
            preparation.place.expect_files()
        return id_

    def _read_request(self, request: beam_job_api_pb2.PrepareJobRequest, id_: str) -> Preparation:
        options = by_name(request.pipeline_options)
        _, config = read_options(options, self._config)  # raises now, not in ``run``
        place: StagingArea | StoredJob = self._area.of_job(id_)
        # Without --jobs_dir, --batch_job_recovery is refused.
        continues = config.recovers_batch or is_continued_stream(request.pipeline, config)
        if self._stored_jobs is not None and continues:
            place = self._stored_jobs.new_job()
            for_server(request.pipeline, config, place.location)  # raises now
        return Preparation.of_request(request, options, place, self._config.max_artifact_bytes)

    def drop_abandoned(self) -> None:
        """Drop preparations whose clients have neither staged anything for an hour nor called Run.

        Their staged files are deleted.
        """
        old_s = time.monotonic() - _PREPARED_FOR_S
        with self._lock:
            late = [id_ for id_, item in self._preparations.items() if item.files.touched_s < old_s]
            places = [self._preparations.pop(id_).place for id_ in late]
        for item in places:
            item.remove()

    def files_of(self, staging_token: str) -> StagedArtifacts:
        """Return the staged files of a preparation.

        Raises:
            UnknownIdError: No preparation has this token, or it has run.
        """
        with self._lock:
            preparation = self._preparations.get(staging_token)
        if preparation is None:
            raise UnknownIdError(f"there is no staging token {staging_token[:100]!r}")
        return preparation.files

    def run(self, preparation_id: str, peer: str = "") -> str:
        """Compile a prepared pipeline, and add its job to the queue; return the job's id.

        A client whose answer was lost may call it again.

        Args:
            preparation_id: The id of the preparation.
            peer: The client's address, as gRPC writes it.

        Raises:
            UnknownIdError: No preparation has this id.
            NotStagedError: The client has not staged all files.
            CheckpointStorageError: ``--jobs_dir`` cannot be written.
            RunnerError: The pipeline cannot be compiled, or not within ``--prepare_timeout``. The
                preparation is dropped. If the job was cancelled meanwhile, there is no error.
        """
        with self._lock:
            self._check_open()
            answer = self._runs.get(preparation_id)
            job = self._new_job(preparation_id, peer) if answer is None else None
            if job is not None:
                answer = self._runs[preparation_id] = Future()
        assert answer is not None
        if job is not None:
            try:
                self._prepare_and_queue(job)
            except BaseException as error:
                with self._lock:
                    self._runs.pop(preparation_id, None)
                    if not job.is_stored:
                        self._jobs.pop(job.job_id, None)
                answer.set_exception(error)
            else:
                answer.set_result(job.job_id)
        return answer.result()

    def _new_job(self, preparation_id: str, peer: str) -> ServedJob:
        """Make a job of a preparation. The lock is held."""
        preparation = self._preparations.get(preparation_id)
        if preparation is None:
            raise UnknownIdError(f"there is no preparation {preparation_id[:100]!r}")
        if not preparation.files.is_complete:
            raise NotStagedError(
                "the pipeline needs files that the client has not staged: it has to send them "
                "to the artifact_staging_endpoint in the response to Prepare"
            )
        del self._preparations[preparation_id]
        stored = preparation.place if isinstance(preparation.place, StoredJob) else None
        job = ServedJob(
            new_job_id() if stored is None else stored.job_id,
            preparation.submission(preparation_id, peer),
            place=preparation.place,
        )
        job.wait_in_queue()
        self._jobs[job.job_id] = job
        return job

    def _prepare_and_queue(self, job: ServedJob) -> None:
        try:
            job.prepare(lambda: self._compile(job), self._config.prepare_timeout_s)
            if job.is_recoverable:
                assert self._stored_jobs is not None
                job.store(self._stored_jobs)
            with self._lock:
                if job.control.is_cancelled:
                    raise JobCancelledError
                self._check_open()
            self._queue.add([job])
        except JobCancelledError as error:
            if job.control.is_suspended:
                self._end_new(job)
                raise ServerIsEndingError(_ENDING) from error
            job.drop()
            self._has_ended(job)
        except ServerIsEndingError:
            self._end_new(job)
            raise
        except BaseException as error:
            job.fail(error)
            raise

    def _end_new(self, job: ServedJob) -> None:
        """End a job that the server, which is ending, does not add to the queue any more."""
        if job.is_stored:
            job.suspend()
        else:
            job.fail(ServerIsEndingError(_ENDING))

    def _compile(self, job: ServedJob) -> PreparedJob:
        submitted, place = job.submitted, job.place
        pipeline = beam_runner_api_pb2.Pipeline.FromString(submitted.coded_pipeline)
        replace_artifacts(pipeline, submitted.staged, area_of(place))
        sent = by_name(struct_pb2.Struct.FromString(submitted.coded_options))
        options, config = read_options(sent, self._config)
        if isinstance(place, StoredJob):
            config = for_server(pipeline, config, place.location)
        return prepare(pipeline, options, config, _no_loopback, job_id=job.job_id, all_options=sent)

    def _run_from_queue(self, job: ServedJob, pool: str) -> None:
        with self._lock:
            earlier = self._earlier_jobs.pop(job.job_id, None)
        if earlier is None or self._prepare_again(job, earlier):
            job.run(
                lambda config: self._open_session(config, pool),
                lambda: self._queue.note_progress(job),
            )

    def _prepare_again(self, job: ServedJob, earlier: FoundJob) -> bool:
        """Compile a job of an earlier server; return whether it can run."""
        stored = earlier.stored
        try:
            earlier.check()
            stored.begin_try(earlier.tries + 1)
            job.prepare(lambda: self._compile(job), self._config.prepare_timeout_s)
            stored.end_tries()
            return True
        except JobCancelledError:
            if job.control.is_suspended:
                stored.forget_tries()
                job.suspend()
            else:
                job.drop()
        except BaseException as error:
            job.fail(error)
        return False

    def _has_ended(self, job: ServedJob) -> None:
        """Record that a job has ended, and drop the oldest ended jobs beyond the limits."""
        dropped: list[ServedJob] = []
        with self._lock:
            self._ended_jobs.append(job)
            total_bytes = sum(dropped_job.kept_bytes for dropped_job in self._ended_jobs)
            while len(self._ended_jobs) > MAX_ENDED or (
                total_bytes > MAX_BYTES_OF_ENDED and len(self._ended_jobs) > 1
            ):
                oldest = self._ended_jobs.popleft()
                total_bytes -= oldest.kept_bytes
                del self._jobs[oldest.job_id]
                self._runs.pop(oldest.submitted.preparation_id, None)
                dropped.append(oldest)
        for dropped_job in dropped:
            dropped_job.remove_stored_end()

    def job(self, job_id: str) -> ServedJob:
        """Return a job.

        Raises:
            UnknownIdError: No job has this id, or it ended long ago and was dropped.
        """
        with self._lock:
            job = self._jobs.get(job_id)
        if job is None:
            raise UnknownIdError(f"there is no job {job_id[:100]!r}")
        return job

    def all(self) -> list[ServedJob]:
        """Return all jobs, the oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def job_metrics(self) -> list[JobMetrics]:
        """Return the running jobs, with the names under which their metrics are served."""
        return [metrics for job in self.all() if (metrics := job.job_metrics()) is not None]

    def cancel(self, job_id: str) -> ServedJob:
        """Begin to cancel a job; do not wait. Does nothing after its end.

        Raises:
            UnknownIdError: See ``job``.
        """
        job = self.job(job_id)
        self._cancel(job)
        return job

    def _cancel(self, job: ServedJob) -> None:
        if job.continues_later:
            job.cancel_for_good()
        elif self._queue.remove(job):
            job.drop()
            self._has_ended(job)
        elif not job.has_ended:
            job.control.cancel()  # it may come into the queue now, and runs to see this
            job.store_cancel()
            name = f"beam-cancel-{job.job_id}"
            threading.Thread(target=job.cancel, name=name, daemon=True).start()

    def _suspend(self, job: ServedJob) -> None:
        if self._queue.remove(job):
            job.suspend()
        elif not job.has_ended:
            job.control.suspend()
            name = f"beam-suspend-{job.job_id}"
            threading.Thread(target=job.suspend_running, name=name, daemon=True).start()

    def end_all(self, timeout_s: float) -> bool:
        """Accept no more jobs, and wait for the ends of all; cancel those that are not stored.

        Returns:
            Whether all have ended in time.
        """
        with self._lock:
            self._is_ending = True
        deadline = time.monotonic() + timeout_s
        jobs = self.all()
        for job in jobs:
            if job.may_be_continued:
                self._suspend(job)
            else:
                self._cancel(job)
        return all([job.wait(max(0.0, deadline - time.monotonic())) for job in jobs])

    def delete_staged_files(self) -> None:
        """Delete all staged files; the server must have stopped."""
        self._area.remove()

    def _check_open(self) -> None:
        if self._is_ending:
            raise ServerIsEndingError(_ENDING)


def _no_loopback(_: str) -> str:
    raise UnsupportedFeatureError(
        "a LOOPBACK environment that names no worker pool", "the environment"
    )
