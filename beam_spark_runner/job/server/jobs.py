"""All jobs of a server: prepared by clients, waiting for their turn, running, and ended."""

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable

from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2
from google.protobuf import struct_pb2

from beam_spark_runner.core.errors import UnsupportedFeatureError
from beam_spark_runner.job.export.prometheus import JobMetrics
from beam_spark_runner.job.files.identity import new_job_id
from beam_spark_runner.job.prepare.environment_overrides import read_overrides
from beam_spark_runner.job.prepare.prepare import PreparedJob, prepare
from beam_spark_runner.job.run.control import JobCancelledError
from beam_spark_runner.job.server.client_options import by_name, read_options
from beam_spark_runner.job.server.job_titles import title_of
from beam_spark_runner.job.server.limited_call import LimitedCall
from beam_spark_runner.job.server.preparation import Preparation
from beam_spark_runner.job.server.refusals import (
    NotStagedError,
    ServerIsEndingError,
    TooManyJobsError,
    UnknownIdError,
)
from beam_spark_runner.job.server.served_job import ServedJob
from beam_spark_runner.job.server.staging import StagedArtifacts
from beam_spark_runner.job.server.staging_area import open_staging_area
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.server_options import ServerConfig
from beam_spark_runner.spark.session.handle import SessionHandle

_LOGGER = logging.getLogger(__name__)

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

    Raises:
        OptionsError: ``--artifacts_dir`` cannot be written, or ``--environment_config`` is invalid.
    """

    def __init__(self, config: ServerConfig, open_session: OpenSession) -> None:
        read_overrides(config.environment_overrides)  # raises now rather than with the first job
        self._config = config
        self._open_session = open_session
        self._area = open_staging_area(config.artifacts_dir)
        self._prepared: dict[str, Preparation] = {}
        self._jobs: dict[str, ServedJob] = {}
        self._waiting: deque[ServedJob] = deque()
        self._ended: deque[ServedJob] = deque()  # in the order of their ends
        self._free_pools = [f"beam-{n}" for n in reversed(range(config.max_concurrent_jobs))]
        self._is_ending = False
        self._lock = threading.Lock()

    def prepare(self, request: beam_job_api_pb2.PrepareJobRequest) -> str:
        """Store a pipeline; return the id of the preparation, which is its staging token, too.

        Raises:
            OptionsError: An option is invalid.
            InvalidPipelineError: An ANYOF environment is invalid.
            ServerIsEndingError: The server accepts no more jobs.
            TooManyJobsError: As many jobs wait as ``--max_waiting_jobs`` or
                ``--max_waiting_bytes`` allows.
            PrepareTimeoutError: This takes longer than ``--prepare_timeout``.
        """
        self._check_open()
        id_ = uuid.uuid4().hex
        read = LimitedCall(lambda: self._read(request, id_), self._config.prepare_timeout_s)
        made = read.result()
        with self._lock:
            self._check_room(made.waiting_bytes)
            self._prepared[id_] = made
        return id_

    def _read(self, request: beam_job_api_pb2.PrepareJobRequest, id_: str) -> Preparation:
        given = by_name(request.pipeline_options)
        read_options(given, self._config)  # raises now, not in ``run``
        # --job_name comes first, since Beam's own client names all jobs "job".
        name = str(given.get("job_name") or request.job_name)
        return Preparation.of(request, name, self._area.of(id_), self._config.max_artifact_bytes)

    def _check_room(self, wanted_bytes: int) -> None:
        """Check whether one more preparation may wait. The lock is held."""
        waiting: list[Preparation | ServedJob] = [
            *self._prepared.values(),
            *(job for job in self._jobs.values() if not job.record.has_begun),
        ]
        if len(waiting) >= self._config.max_waiting_jobs:
            raise TooManyJobsError(
                f"{len(waiting)} jobs wait already, as many as --max_waiting_jobs of the job "
                "server allows; try again later"
            )
        taken, most = sum(each.waiting_bytes for each in waiting), self._config.max_waiting_bytes
        if wanted_bytes > most:
            raise TooManyJobsError(
                f"this pipeline needs about {wanted_bytes} bytes of memory while it waits; "
                f"--max_waiting_bytes of the job server is {most}"
            )
        if taken + wanted_bytes > most:
            raise TooManyJobsError(
                f"this pipeline needs about {wanted_bytes} bytes of memory while it waits, and the "
                f"{len(waiting)} jobs that wait already have {taken} of the {most} that "
                "--max_waiting_bytes of the job server allows; try again later"
            )

    def drop_abandoned(self) -> None:
        """Drop preparations whose clients have neither staged anything for an hour nor called Run.

        Their staged files are deleted.
        """
        before_s = time.monotonic() - _PREPARED_FOR_S
        with self._lock:
            late = [id_ for id_, each in self._prepared.items() if each.files.touched_s < before_s]
            areas = [self._prepared.pop(id_).area for id_ in late]
        for each in areas:
            each.remove()

    def files_of(self, staging_token: str) -> StagedArtifacts:
        """Return the staged files of a preparation.

        Raises:
            UnknownIdError: No preparation has this token, or it has run.
        """
        with self._lock:
            found = self._prepared.get(staging_token)
        if found is None:
            raise UnknownIdError(f"there is no staging token {staging_token[:100]!r}")
        return found.files

    def run(self, preparation_id: str, peer: str = "") -> str:
        """Compile a prepared pipeline, and add its job to the queue; return the job's id.

        Args:
            preparation_id: The id of the preparation.
            peer: The client's address, as gRPC writes it.

        Raises:
            UnknownIdError: No preparation has this id, or it has run.
            NotStagedError: The client has not staged all files.
            RunnerError: The pipeline cannot be compiled, or not within ``--prepare_timeout``. The
                preparation is dropped. If the job was cancelled meanwhile, there is no error.
        """
        self._check_open()
        with self._lock:
            found = self._prepared.get(preparation_id)
            if found is None:
                raise UnknownIdError(f"there is no preparation {preparation_id[:100]!r}")
            if not found.files.is_complete:
                raise NotStagedError(
                    "the pipeline needs files that the client has not staged: it has to send them "
                    "to the artifact_staging_endpoint in the response to Prepare"
                )
            del self._prepared[preparation_id]
        job = ServedJob(
            new_job_id(),
            name=found.name,
            title=title_of(found.shown_name, peer),
            coded_options=found.coded_options,
            coded_pipeline=found.coded_pipeline,
            files=found.area,
            waiting_bytes=found.waiting_bytes,
        )
        try:
            with self._lock:
                self._check_open()
                self._jobs[job.job_id] = job
            limit_s = self._config.prepare_timeout_s
            job.prepare(lambda: self._compile(found, job.job_id), limit_s)
            self._add_to_queue(job)
        except JobCancelledError:
            job.drop()
            with self._lock:
                self._has_ended(job)
        except BaseException as error:
            job.fail(error)
            with self._lock:
                self._jobs.pop(job.job_id, None)
            raise
        return job.job_id

    def _compile(self, found: Preparation, job_id: str) -> PreparedJob:
        pipeline = beam_runner_api_pb2.Pipeline.FromString(found.coded_pipeline)
        found.files.replace_in(pipeline)
        given = by_name(struct_pb2.Struct.FromString(found.coded_options))
        options, config = read_options(given, self._config)
        return prepare(pipeline, options, config, _refuse_loopback, job_id=job_id, given=given)

    def _add_to_queue(self, job: ServedJob) -> None:
        with self._lock:
            if job.control.is_cancelled:
                raise JobCancelledError
            if self._is_ending:
                raise ServerIsEndingError(_ENDING)
            self._waiting.append(job)
            self._begin_next()

    def _begin_next(self) -> None:
        """Start waiting jobs, as long as there are free scheduler pools. The lock is held."""
        while self._waiting and self._free_pools:
            job, pool = self._waiting.popleft(), self._free_pools.pop()
            thread = threading.Thread(
                target=self._run, args=(job, pool), name=f"beam-serve-{job.job_id}"
            )
            try:
                thread.start()
            except RuntimeError as error:  # the machine has no more threads for this process
                self._free_pools.append(pool)
                job.fail(error)
                self._has_ended(job)

    def _run(self, job: ServedJob, pool: str) -> None:
        try:
            job.run(lambda config: self._open_session(config, pool))
        except Exception:
            _LOGGER.exception("job %s", job.job_id)
        finally:
            with self._lock:
                self._free_pools.append(pool)
                self._has_ended(job)
                self._begin_next()

    def _has_ended(self, job: ServedJob) -> None:
        """Record that a job has ended, and drop the oldest ended jobs beyond the limits.

        The lock is held.
        """
        self._ended.append(job)
        kept = sum(each.kept_bytes for each in self._ended)
        while len(self._ended) > MAX_ENDED or (kept > MAX_BYTES_OF_ENDED and len(self._ended) > 1):
            oldest = self._ended.popleft()
            kept -= oldest.kept_bytes
            del self._jobs[oldest.job_id]

    def job(self, job_id: str) -> ServedJob:
        """Return a job.

        Raises:
            UnknownIdError: No job has this id, or it ended long ago and was dropped.
        """
        with self._lock:
            found = self._jobs.get(job_id)
        if found is None:
            raise UnknownIdError(f"there is no job {job_id[:100]!r}")
        return found

    def all(self) -> list[ServedJob]:
        """Return all jobs, the oldest first."""
        with self._lock:
            return list(self._jobs.values())

    def measured(self) -> list[JobMetrics]:
        """Return the running jobs, with the names under which their metrics are served."""
        return [found for job in self.all() if (found := job.measured()) is not None]

    def cancel(self, job_id: str) -> ServedJob:
        """Begin to cancel a job; do not wait. Does nothing after its end.

        Raises:
            UnknownIdError: See ``job``.
        """
        job = self.job(job_id)
        self._cancel(job)
        return job

    def _cancel(self, job: ServedJob) -> None:
        with self._lock:
            waits = job in self._waiting
            if waits:
                self._waiting.remove(job)
            else:
                job.control.cancel()  # before it may come into the queue
        if waits:
            job.drop()
            with self._lock:
                self._has_ended(job)
        elif not job.has_ended:
            name = f"beam-cancel-{job.job_id}"
            threading.Thread(target=job.cancel, name=name, daemon=True).start()

    def end(self, timeout_s: float) -> bool:
        """Accept no more jobs, cancel all of them, and wait for their ends.

        Returns:
            Whether all have ended in time.
        """
        with self._lock:
            self._is_ending = True
        deadline = time.monotonic() + timeout_s
        jobs = self.all()
        for job in jobs:
            self._cancel(job)
        return all([job.wait(max(0.0, deadline - time.monotonic())) for job in jobs])

    def close(self) -> None:
        """Delete all staged files; the server must have stopped."""
        self._area.remove()

    def _check_open(self) -> None:
        if self._is_ending:
            raise ServerIsEndingError(_ENDING)


def _refuse_loopback(_: str) -> str:
    raise UnsupportedFeatureError(
        "a LOOPBACK environment that names no worker pool", "the environment"
    )
