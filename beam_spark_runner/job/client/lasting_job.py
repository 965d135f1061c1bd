"""The calls about a job that its server stores: they outlast a restart of the server."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from beam_spark_runner.core.errors import JobServerLostError
from beam_spark_runner.job.client.submitted import LOST

_LOGGER = logging.getLogger(__name__)
_ERROR = beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR
_PATIENCE_S = 300.0
_TRIES_EVERY_S = 1.0
_Answer = TypeVar("_Answer")


class LastingJob:
    """The calls about one job. Threads: each call by one.

    Args:
        stub: The job service.
        endpoint: HOST:PORT of the server.
        timeout_s: ``--job_server_timeout``. A server may be away for that time, or for five
            minutes if that is longer.
        sleep: Waits for some seconds.
        now_s: A monotonic clock.
    """

    def __init__(
        self,
        stub: beam_job_api_pb2_grpc.JobServiceStub,
        endpoint: str,
        timeout_s: float,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stub, self._endpoint = stub, endpoint
        self._patience_s = max(_PATIENCE_S, timeout_s)
        self._sleep, self._now_s = sleep, now_s
        self._job_id = ""

    def run_job(self, preparation_id: str, prepare: Callable[[], str]) -> str:
        """Run a preparation; return the job's id. A lost answer is asked for again.

        Args:
            preparation_id: The id of the preparation.
            prepare: Prepares the pipeline again, and returns the id of that. Is called if the next
                server does not know the first one: the job was not stored.

        Raises:
            RpcError: The server refuses it.
            JobServerLostError: It has not answered for too long.
        """
        preparation, was_lost = preparation_id, False

        def run() -> beam_job_api_pb2.RunJobResponse:
            nonlocal preparation, was_lost
            try:
                return self._stub.Run(beam_job_api_pb2.RunJobRequest(preparation_id=preparation))
            except grpc.RpcError as error:
                was_lost = was_lost or error.code() in LOST
                # A server that is closing says so, and not that it does not know the preparation.
                if error.code() is not grpc.StatusCode.NOT_FOUND or not was_lost:
                    raise
            preparation = prepare()
            return self._stub.Run(beam_job_api_pb2.RunJobRequest(preparation_id=preparation))

        ((answer, _),) = self._repeat_while_lost(lambda: iter([run()]), lambda _: True)
        self._job_id = str(answer.job_id)
        return self._job_id

    def states(self) -> Iterator[Any]:
        """Yield the states of the job until it has ended; some of them more than once.

        Raises:
            RpcError, JobServerLostError: See ``run_job``.
        """
        request = beam_job_api_pb2.GetJobStateRequest(job_id=self._job_id)
        for state, _ in self._repeat_while_lost(
            lambda: self._stub.GetStateStream(request), _Later()
        ):
            yield state

    def messages(self) -> Iterator[Any]:
        """Yield the messages of the job, and its states, until it has ended or the server is lost.

        Each is yielded once, although a restarted server sends them again.
        """
        request = beam_job_api_pb2.JobMessagesRequest(job_id=self._job_id)
        try:
            for message, is_new in self._repeat_while_lost(
                lambda: self._stub.GetMessageStream(request), _Unseen(), logs_loss=False
            ):
                if is_new:
                    yield message
        except JobServerLostError:
            return  # which ``states`` raises, too

    def _repeat_while_lost(
        self,
        open_: Callable[[], Iterator[_Answer]],
        is_new: Callable[[_Answer], bool],
        *,
        logs_loss: bool = True,
    ) -> Iterator[tuple[_Answer, bool]]:
        """Yield what a call returns, and whether it is new; call again if the server was lost.

        Args:
            open_: Makes the call.
            is_new: Whether an answer says that the job continues: a server that has suspended the
                job sends what it knows of it, before it says so.
            logs_loss: Whether to log that the server is lost.
        """
        lost_s: float | None = None
        while True:
            try:
                for answer in open_():
                    if (shows_life := is_new(answer)) and lost_s is not None:
                        lost_s = None
                        if logs_loss:
                            _LOGGER.warning("the job server at %s answers again", self._endpoint)
                    yield answer, shows_life
                return
            except grpc.RpcError as error:
                is_unknown = error.code() is grpc.StatusCode.NOT_FOUND
                # A server that does not know the job may be the old one, which is closing.
                if error.code() not in LOST and not (is_unknown and lost_s is not None):
                    raise
                now_s = self._now_s()
                if lost_s is None:
                    lost_s = now_s
                    if logs_loss:
                        _LOGGER.warning(
                            "the job server at %s does not answer (%s). The job continues once it "
                            "is started again with its --jobs_dir; it is waited for, %g s at most",
                            self._endpoint,
                            error.details(),
                            self._patience_s,
                        )
                elif now_s - lost_s >= self._patience_s:
                    raise JobServerLostError(
                        self._endpoint,
                        self._job_id,
                        error.details(),
                        f"Job {self._job_id} continues once the server is started again",
                    ) from error
            self._sleep(_TRIES_EVERY_S)


class _Later:
    """Whether a state is later than all before: a restarted server begins from the first one."""

    def __init__(self) -> None:
        self._last_ns = -1

    def __call__(self, state: beam_job_api_pb2.JobStateEvent) -> bool:
        at_ns = int(state.timestamp.ToNanoseconds())
        is_later, self._last_ns = at_ns > self._last_ns, max(at_ns, self._last_ns)
        return is_later


class _Unseen:
    """Whether a message of a stream is new, although a restarted server begins from the first one.

    The ids of messages and the times of states grow.
    """

    def __init__(self) -> None:
        self._last_id = (0, 0)
        self._is_later = _Later()

    def __call__(self, message: Any) -> bool:
        if message.HasField("message_response"):
            id_ = _numbers_of(message.message_response.message_id)
            # Of another server; or the reason of a failure, which comes last.
            if id_ is None or message.message_response.importance == _ERROR:
                return True
            is_new, self._last_id = id_ > self._last_id, max(id_, self._last_id)
            return is_new
        return self._is_later(message.state_response)


def _numbers_of(message_id: str) -> tuple[int, int] | None:
    """Return the number of the server's start, and of the message; see ``JobMessages``."""
    start, _, number = message_id.rpartition(".")
    try:
        return int(start or 1), int(number)
    except ValueError:
        return None
