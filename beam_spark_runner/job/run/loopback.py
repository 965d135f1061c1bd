"""LOOPBACK: SDK harnesses in threads of this process, for the time of one job."""

import contextvars
import logging
import threading
import time
from concurrent import futures
from typing import Any, NamedTuple

import grpc
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
)
from typing_extensions import override

from beam_spark_runner.backchannel.log_lines import LogHandler
from beam_spark_runner.core.rendering import render_error
from beam_spark_runner.harness.beam.profiling import Profiling
from beam_spark_runner.harness.beam.sampling import running_transform
from beam_spark_runner.harness.beam.threaded_harness import ThreadedHarness
from beam_spark_runner.harness.fn_api.serving import stop_serving
from beam_spark_runner.job.watching.messages import JobMessages

_LOGGER = logging.getLogger(__name__)
_TEARDOWN_S = 10.0  # for DoFns to be torn down at the end of the job
_OF_FAILURES = logging.getLogger("apache_beam.runners.common")
"""Beam's logger of each exception that a DoFn raises, which the job raises anyway."""


class _Name(NamedTuple):
    """Identifies a harness by its pool and the Python worker that it serves."""

    pool: "LoopbackPool"
    worker: str

    @override
    def __str__(self) -> str:
        return self.worker


_RUNNING: contextvars.ContextVar[_Name | None] = contextvars.ContextVar("running", default=None)
"""The harness whose code this thread runs; not the object, since gRPC's threads may keep it alive
after its end."""


def _worker_of(worker_id: str) -> str:
    """Return the Python worker of a harness: the worker id without the secret at its end."""
    return worker_id.rpartition("-")[0]


class _Servicer(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):  # type: ignore[misc]
    """The gRPC side of a pool."""

    def __init__(self, pool: "LoopbackPool") -> None:
        self._pool = pool

    @override
    def StartWorker(self, request: Any, context: Any) -> beam_fn_api_pb2.StartWorkerResponse:
        try:
            self._pool.start_harness(request.worker_id, request.control_endpoint.url)
        except Exception as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=render_error(error).traceback_text)
        return beam_fn_api_pb2.StartWorkerResponse()

    @override
    def StopWorker(self, request: Any, context: Any) -> beam_fn_api_pb2.StopWorkerResponse:
        self._pool.end_harness(request.worker_id)
        return beam_fn_api_pb2.StopWorkerResponse()


class LoopbackPool:
    """This process as a worker pool, which runs the code of one job's LOOPBACK steps. Threads: any.

    Its creator must stop it.

    Args:
        cache_bytes: The most bytes in the state cache of each harness.
        profiling: Makes profiles of their bundles.

    Attributes:
        url: Its address, HOST:PORT.
    """

    def __init__(self, cache_bytes: int, profiling: Profiling) -> None:
        self._cache_bytes, self._profiling = cache_bytes, profiling
        self._harnesses: dict[str, ThreadedHarness] = {}
        self._is_stopped = False
        self._lock = threading.Lock()
        self._lines: LogHandler | None = None
        self._threads = futures.ThreadPoolExecutor(thread_name_prefix="beam-loopback")
        self._server = grpc.server(self._threads)
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(
            _Servicer(self), self._server
        )
        self.url = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def keep_lines(self, messages: JobMessages) -> None:
        """Add the log lines of the harnesses to ``messages``, in addition to logging them here."""
        self._lines = LogHandler(_MessageSink(messages), running_transform)
        self._lines.addFilter(self._is_ours)
        logging.getLogger().addHandler(self._lines)
        _OF_FAILURES.addFilter(self._is_news)

    def start_harness(self, worker_id: str, control_url: str) -> None:
        """Start a harness for a Python worker.

        Args:
            worker_id: The id of the harness in the Fn API.
            control_url: The address of the control service, HOST:PORT.

        Raises:
            RuntimeError: ``stop`` was called.
        """
        name = _Name(self, _worker_of(worker_id))
        harness = ThreadedHarness(
            control_url, worker_id, self._cache_bytes, _RUNNING, name, self._profiling
        )
        with self._lock:
            if self._is_stopped:
                raise RuntimeError("the job has ended")
            for id_ in [id_ for id_, other in self._harnesses.items() if other.wait(0)]:
                del self._harnesses[id_]
            harness.start()
            self._harnesses[worker_id] = harness

    def end_harness(self, worker_id: str) -> None:
        """Request that a harness ends; do not wait."""
        with self._lock:
            harness = self._harnesses.get(worker_id)
        if harness is not None:
            harness.end()

    def stop(self) -> None:
        """End all harnesses, wait while they tear their DoFns down, and close the port."""
        with self._lock:
            self._is_stopped = True
        # The Python workers must still run: a harness reports an error if they close a stream.
        for harness in self._harnesses.values():
            harness.end()
        deadline = time.monotonic() + _TEARDOWN_S
        for worker_id, harness in self._harnesses.items():
            if not harness.wait(max(0.0, deadline - time.monotonic())):
                _LOGGER.warning(
                    "the SDK harness of %s has not finished tearing down its DoFns after %g s",
                    _worker_of(worker_id),
                    _TEARDOWN_S,
                )
        if self._lines is not None:
            _OF_FAILURES.removeFilter(self._is_news)
            logging.getLogger().removeHandler(self._lines)
            self._lines.flush()
        stop_serving(self._server, self._threads)

    def _is_ours(self, _: logging.LogRecord) -> bool:
        running = _RUNNING.get()
        return running is not None and running.pool is self

    def _is_news(self, record: logging.LogRecord) -> bool:
        return record.levelno != logging.ERROR or not self._is_ours(record)


class _MessageSink:
    """A ``LogSink`` that adds log lines to the messages of a job."""

    def __init__(self, messages: JobMessages) -> None:
        self._messages = messages

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        running = _RUNNING.get()
        assert running is not None  # the handler's filter
        self._messages.take_line(running.worker, entry, is_logged=True)

    def leave_out(self, lines: int) -> None:
        self._messages.leave_out(lines)
