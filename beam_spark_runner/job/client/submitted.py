"""The result of a pipeline that a job server runs."""

import atexit
import contextlib
import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

import grpc
from apache_beam.metrics.metric import MetricResults
from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability import portable_runner
from apache_beam.runners.runner import PipelineState
from apache_beam.utils.timestamp import Timestamp
from typing_extensions import override

from beam_spark_runner._generated import streaming_jobs_pb2
from beam_spark_runner.core.errors import (
    SAVEPOINT_ARGUMENT,
    JobServerLostError,
    JobServerRefusedError,
    OptionsError,
)
from beam_spark_runner.job.access import REFUSED_BY_US
from beam_spark_runner.job.run.sigterm import FirstSigterm, sigterm_raises
from beam_spark_runner.job.streaming_jobs import StreamingJobsStub
from beam_spark_runner.job.watching.stream_watch import StepWatermarks

LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""The status codes of calls whose server was killed or stopped."""
_SHOWN_WITHIN_S = 5.0
_LOGGER = logging.getLogger(__name__)
_OURS = "only job servers of beam_spark_runner, from this version on, support this"


class SubmittedPipelineResult(portable_runner.PipelineResult):  # type: ignore[misc]
    """Beam's PipelineResult, with the methods of ``SparkPipelineResult`` for streaming pipelines.

    Args:
        result: Beam's result of the same job, which this one replaces.
        channel: The channel to the job server.
        endpoint: HOST:PORT of the server.
        drains_on_sigterm: Whether the first SIGTERM drains the pipeline.
        name: The name of the pipeline.

    Attributes:
        spark_ui_url: The URL of the server's Spark UI, as the server knows it. None: it
            has none, or the server does not tell.
    """

    def __init__(
        self,
        result: portable_runner.PipelineResult,
        channel: grpc.Channel,
        endpoint: str,
        *,
        drains_on_sigterm: bool,
        name: str = "",
        spark_ui_url: str | None = None,
    ) -> None:
        super().__init__(
            result._job_service,
            result._job_id,
            result._message_stream,
            result._state_stream,
            result._cleanup_callbacks,
        )
        if self._cleanup_callbacks:
            result._cleanup_callbacks = ()  # else both results would call them at exit
            atexit.register(functools.partial(self._cleanup, on_exit=True))
        self._states = result._state_stream
        self._streaming_jobs = StreamingJobsStub(channel)
        self._endpoint, self._name = endpoint, name
        self.spark_ui_url = spark_ui_url
        self._first_sigterm = FirstSigterm(self._begin_to_drain) if drains_on_sigterm else None

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}: {self._state_within_a_moment()}>"

    def _state_within_a_moment(self) -> str:
        """Return the state as ``state`` does; UNKNOWN if the server does not answer soon."""
        if PipelineState.is_terminal(self._state):
            return str(self._state)
        request = beam_job_api_pb2.GetJobStateRequest(job_id=self._job_id)
        try:
            answer = self._job_service.GetState(request, timeout=_SHOWN_WITHIN_S)
        except grpc.RpcError:
            return str(PipelineState.UNKNOWN)
        return str(self.runner_api_state_to_pipeline_state(answer.state))

    @property
    def job_id(self) -> str:
        """The id of the job on the server."""
        return str(self._job_id)

    def metrics(self) -> MetricResults:
        """Return the current metrics."""
        self._metrics = None  # Beam's result caches those of the first call
        return super().metrics()

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Wait for the end, or for ``duration`` milliseconds.

        With --drain_on_sigterm, the first SIGTERM drains the pipeline, and the second one ends this
        program; the job continues.

        Raises:
            RuntimeError: The pipeline failed or was cancelled; the text has the reason.
            JobServerLostError: The server no longer answers.
        """
        with contextlib.ExitStack() as waiting:
            if self._first_sigterm is not None:
                waiting.enter_context(sigterm_raises(self._first_sigterm))
            try:
                return str(super().wait_until_finish(duration))
            except RuntimeError:
                if self._state == PipelineState.DRAINED:  # which Beam's result treats as a failure
                    return str(self._state)
                raise
            finally:
                if PipelineState.is_terminal(self._state):
                    self._states.close()  # else the interpreter does it at its end, without modules

    def _begin_to_drain(self) -> None:
        """Drain in a thread: the signal may have interrupted gRPC while it holds locks."""
        threading.Thread(target=self._drain_and_log, name="drain-the-job", daemon=True).start()

    def _drain_and_log(self) -> None:
        try:
            self.drain()
        except Exception as error:
            _LOGGER.error("the pipeline was not drained at SIGTERM: %s", error)

    def drain(self) -> str:
        """Drain the pipeline by ``Drain`` of Beam's Job API; see ``SparkPipelineResult.drain``.

        Returns:
            The state, which may still be RUNNING.

        Raises:
            JobServerRefusedError: the pipeline runs in batch, or the server cannot drain.
            JobServerLostError: the server no longer answers.
        """
        answer = self._ask(
            self._job_service.Drain,
            beam_job_api_pb2.DrainJobRequest(job_id=self._job_id),
            f"it cannot drain jobs; {_OURS}",
        )
        return str(self.runner_api_state_to_pipeline_state(answer.state))

    @override
    def savepoint(self, path: str) -> int:
        """Have the server make a savepoint, as ``SparkPipelineResult.savepoint`` says.

        Args:
            path: An absolute path on the server's machine, or the URL of a folder in an object
                store or HDFS.

        Returns:
            The number of the epoch that was copied.

        Raises:
            OptionsError: The path is empty.
            JobServerRefusedError: The server returns an error, or does not support savepoints.
            JobServerLostError: The server no longer answers.
        """
        if not path:
            raise OptionsError(SAVEPOINT_ARGUMENT, "must be a folder")
        answer = self._ask(
            self._streaming_jobs.MakeSavepoint,
            streaming_jobs_pb2.MakeSavepointRequest(job_id=self._job_id, path=path),
            f"it makes no savepoints; {_OURS}",
        )
        return int(answer.epoch)

    @override
    def watermarks(self) -> dict[str, StepWatermarks]:
        """Ask the server for the watermarks, as ``SparkPipelineResult.watermarks`` says.

        Raises:
            JobServerRefusedError: The pipeline runs in batch, or the server does not report them.
            JobServerLostError: The server no longer answers.
        """
        answer = self._ask(
            self._streaming_jobs.GetWatermarks,
            streaming_jobs_pb2.GetWatermarksRequest(job_id=self._job_id),
            f"it does not report watermarks; {_OURS}",
        )
        return {
            name: StepWatermarks(Timestamp(micros=step.input_us), Timestamp(micros=step.output_us))
            for name, step in answer.steps.items()
        }

    def _ask(self, call: Callable[[Any], Any], request: Any, lack: str) -> Any:
        """Call the server, and convert gRPC's errors.

        Args:
            call: The method of a stub.
            request: The request of the call.
            lack: The reason to report if the server does not implement the call.

        Raises:
            JobServerLostError: The server no longer answers.
            JobServerRefusedError: The server returns an error, or does not implement the call.
        """
        try:
            return call(request)
        except grpc.RpcError as error:
            is_ours = REFUSED_BY_US in [tuple(fact) for fact in error.trailing_metadata() or ()]
            if error.code() in LOST and not is_ours:
                raise JobServerLostError(self._endpoint, self.job_id, error.details()) from error
            is_unknown = error.code() is grpc.StatusCode.UNIMPLEMENTED and not is_ours
            reason = lack if is_unknown else error.details()
            raise JobServerRefusedError(self._endpoint, reason) from error
