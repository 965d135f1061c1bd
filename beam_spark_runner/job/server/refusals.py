"""Errors of the services, and their conversion to gRPC status codes."""

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import grpc
from google.protobuf.message import DecodeError
from typing_extensions import override

from beam_spark_runner.core.errors import (
    CheckpointStorageError,
    EnvironmentStartError,
    InvalidPipelineError,
    OptionsError,
    PipelineRefusedError,
    RunnerError,
    SparkSetupError,
    StagingError,
    UnsupportedFeatureError,
)
from beam_spark_runner.core.rendering import message_of
from beam_spark_runner.job.access import REFUSED_BY_US
from beam_spark_runner.recovery.manifest import FencedError
from beam_spark_runner.recovery.savepoint_copy import NothingCommittedError, SavepointExistsError

_LOGGER = logging.getLogger(__name__)
_MAX_TEXT_LENGTH = 4_000
_MAX_ENCODED = 6_000  # gRPC's clients take 8 KB of trailing metadata
_SENT_AS_THEY_ARE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")


class UnknownIdError(RunnerError):
    """No job or preparation has this id, or it was dropped."""


class NotStagedError(RunnerError):
    """The files of a pipeline have not been staged, so that it cannot run."""


class TooLargeError(RunnerError):
    """The files that a client stages exceed the limit of the job server."""


class SilentClientError(RunnerError):
    """A client has sent nothing for too long."""


class ReplacedStreamError(RunnerError):
    """The client has opened another stream, which takes the place of this one."""


class TooManyJobsError(RunnerError):
    """As many jobs wait as the job server allows, or they need as much memory as it allows."""


class PrepareTimeoutError(RunnerError):
    """Preparing a pipeline has taken longer than the job server allows.

    Attributes:
        limit_s: The limit of the server.
    """

    def __init__(self, limit_s: float) -> None:
        super().__init__(limit_s)
        self.limit_s = limit_s

    @override
    def __str__(self) -> str:
        return (
            f"preparing the pipeline has taken longer than {self.limit_s} s, the "
            "--prepare_timeout of the job server; make the pipeline smaller, or raise the limit"
        )


class ServerIsEndingError(RunnerError):
    """The job server is ending, and accepts no more jobs."""


class SuspendedJobError(RunnerError):
    """A job is suspended: the next job server, or another one, continues it."""


class LostSparkError(SparkSetupError):
    """The JVM of the server's Spark has ended, so that no job can begin any more."""


class JobHasEndedError(RunnerError):
    """A call needs a job that has not ended."""


_CODES: tuple[tuple[type[Exception], Any], ...] = (
    (UnknownIdError, grpc.StatusCode.NOT_FOUND),
    (NotStagedError, grpc.StatusCode.FAILED_PRECONDITION),
    (JobHasEndedError, grpc.StatusCode.FAILED_PRECONDITION),
    (NothingCommittedError, grpc.StatusCode.FAILED_PRECONDITION),
    (SavepointExistsError, grpc.StatusCode.ALREADY_EXISTS),
    (CheckpointStorageError, grpc.StatusCode.FAILED_PRECONDITION),
    (TooLargeError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (SilentClientError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (ReplacedStreamError, grpc.StatusCode.ABORTED),
    (TooManyJobsError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (PrepareTimeoutError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (ServerIsEndingError, grpc.StatusCode.UNAVAILABLE),
    (FencedError, grpc.StatusCode.UNAVAILABLE),
    (SuspendedJobError, grpc.StatusCode.UNAVAILABLE),
    (OptionsError, grpc.StatusCode.INVALID_ARGUMENT),
    (StagingError, grpc.StatusCode.INVALID_ARGUMENT),
    (InvalidPipelineError, grpc.StatusCode.INVALID_ARGUMENT),
    (DecodeError, grpc.StatusCode.INVALID_ARGUMENT),  # of what is serialised in a request
    (UnsupportedFeatureError, grpc.StatusCode.UNIMPLEMENTED),
    (EnvironmentStartError, grpc.StatusCode.UNAVAILABLE),
    (SparkSetupError, grpc.StatusCode.UNAVAILABLE),
)


def code_of(error: BaseException) -> Any:
    """Return the status code for an error: a ``grpc.StatusCode``."""
    if isinstance(error, PipelineRefusedError):
        codes = {code_of(problem) for problem in error.problems}
        # Invalid parts have precedence over unsupported ones: users must correct them first.
        illegal = grpc.StatusCode.INVALID_ARGUMENT
        return illegal if illegal in codes or not codes else codes.pop()
    return next(
        (code for kind, code in _CODES if isinstance(error, kind)), grpc.StatusCode.INTERNAL
    )


def refuses(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method of a servicer: its errors reach the client as gRPC statuses."""

    @functools.wraps(method)
    def answer(self: Any, request: Any, context: Any) -> Any:
        try:
            return method(self, request, context)
        except (Exception, SystemExit) as error:  # argparse raises the latter
            refused = error
        _abort(context, method.__name__, refused)

    return answer


def refuses_in_stream(method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Decorate a method of a servicer that yields its answers; see ``refuses``."""

    @functools.wraps(method)
    def answer(self: Any, request: Any, context: Any) -> Iterator[Any]:
        try:
            yield from method(self, request, context)
            return
        except (Exception, SystemExit) as error:  # argparse raises the latter
            refused = error
        if context.is_active():  # if not, the client has disconnected, which caused the error
            _abort(context, method.__name__, refused)

    return answer


def _abort(context: Any, method: str, error: BaseException) -> None:
    code = code_of(error)
    if code is grpc.StatusCode.INTERNAL:
        _LOGGER.error("%s failed", method, exc_info=error)
    context.set_trailing_metadata((REFUSED_BY_US,))
    context.abort(code, _short_message(error) or type(error).__name__)


def _short_message(error: BaseException) -> str:
    """Return an error's message, shortened so that gRPC can send it as trailing metadata.

    gRPC percent-encodes all bytes but printable ASCII, so that the limit is that of encoded bytes.
    """
    max_length = _MAX_TEXT_LENGTH
    while True:
        text = message_of(error, max_length)
        encoded_length = len(quote(text, safe=_SENT_AS_THEY_ARE))
        if encoded_length <= _MAX_ENCODED:
            return text
        max_length = max_length * _MAX_ENCODED // (encoded_length + 1)
