"""The logging service: what code in an SDK harness logs."""

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from beam_spark_runner.harness.services.log_valve import LogValve

_LOGGER = logging.getLogger("beam_spark_runner.sdk")
_Severity = beam_fn_api_pb2.LogEntry.Severity
_LEVELS = {
    _Severity.TRACE: logging.DEBUG - 1,
    _Severity.DEBUG: logging.DEBUG,
    _Severity.INFO: logging.INFO,
    _Severity.NOTICE: logging.INFO + 1,
    _Severity.WARN: logging.WARNING,
    _Severity.ERROR: logging.ERROR,
    _Severity.CRITICAL: logging.CRITICAL,
}


def level_of(entry: beam_fn_api_pb2.LogEntry) -> int:
    """Return the level in Python's terms."""
    return _LEVELS.get(entry.severity, logging.INFO)


def is_chatter(entry: beam_fn_api_pb2.LogEntry) -> bool:
    """Whether an entry tells only of the SDK's own start, or of what the runner reports itself."""
    where: str = entry.log_location.rpartition(":")[0]
    severity: int = entry.severity
    info: int = _Severity.INFO
    error: int = _Severity.ERROR
    if where.endswith("/apache_beam/runners/worker/sdk_worker_main.py"):
        return severity < error
    if where.endswith(("/runners/worker/sdk_worker.py", "/apache_beam/runners/common.py")):
        return severity <= info or severity == error
    return severity <= info and "/apache_beam/runners/worker/" in where


class _Connection(Protocol):
    @property
    def worker_id(self) -> str: ...


class LoggingService(beam_fn_api_pb2_grpc.BeamFnLoggingServicer):  # type: ignore[misc]
    """The gRPC side. ``connection_of`` finds who calls."""

    def __init__(self, connection_of: Callable[[Any], _Connection]) -> None:
        self._connection_of = connection_of

    def Logging(self, incoming: Any, context: Any) -> Iterator[Any]:
        """Hand entries to this process's logging until the harness closes the stream."""
        self._connection_of(context)
        valve = LogValve(time.monotonic())
        try:
            for entries in incoming:
                for entry in entries.log_entries:
                    _log(entry, valve)
        except grpc.RpcError:
            pass  # the harness is gone; whoever waits for it is told by its control stream
        _tell_left_out(valve)
        yield from ()


def _log(entry: beam_fn_api_pb2.LogEntry, valve: LogValve) -> None:
    level = level_of(entry)
    if is_chatter(entry) or not _LOGGER.isEnabledFor(level):
        return
    if not valve.lets_through(time.monotonic()):
        return
    _tell_left_out(valve)
    where = f" [{entry.transform_id}]" if entry.transform_id else ""
    trace = f"\n{entry.trace}" if entry.trace else ""
    _LOGGER.log(level, "%s%s%s", entry.message, where, trace)


def _tell_left_out(valve: LogValve) -> None:
    count = valve.take_left_out()
    if count:
        _LOGGER.warning("%d lines of an SDK harness were left out: there were too many", count)
