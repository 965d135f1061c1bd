"""The logging service: receives log lines of an SDK harness."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from beam_spark_runner.backchannel.log_lines import (
    STDERR,
    LogLines,
    LogSink,
    is_chatter,
    is_of_boot_program,
    put_category,
)
from beam_spark_runner.harness.beam.plugin.sdk_logging import left_out_by, mark_of, take_category


class LogStream:
    """The log stream of one SDK harness: where its lines go, and how far it has been read.

    Threads: any.
    """

    def __init__(self) -> None:
        self.sink: LogSink = STDERR
        self.keep: Callable[[bytes], None] = lambda line: None
        """Takes the lines that the boot program of a container passes on, for error messages."""
        self._mark = 0
        self._is_broken = False
        self._changed = threading.Condition()

    def begin(self) -> None:
        """The stream begins, for the first time or anew."""
        self._is_broken = False

    def end(self) -> None:
        """No mark comes by this stream any more."""
        with self._changed:
            self._is_broken = True
            self._changed.notify_all()

    def reach(self, mark: int) -> None:
        """All that was logged before a mark has been handed on."""
        with self._changed:
            self._mark = mark
            self._changed.notify_all()

    def wait_for(self, mark: int, timeout_s: float) -> bool:
        """Wait until a mark is reached; False if it was not in time, or cannot be any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._mark >= mark or self._is_broken, timeout_s)
            return self._mark >= mark


def _split_trace(entry: beam_fn_api_pb2.LogEntry) -> None:
    """Have a traceback in ``trace`` only: Beam's Python SDK sends it in the message, too."""
    entry.trace = entry.trace.rstrip()
    if entry.trace:
        entry.message = entry.message.replace(entry.trace, "", 1).rstrip()


class LoggingService(beam_fn_api_pb2_grpc.BeamFnLoggingServicer):  # type: ignore[misc]
    """The gRPC side. ``stream_of`` finds the stream of the harness that calls."""

    def __init__(self, stream_of: Callable[[Any], LogStream]) -> None:
        self._stream_of = stream_of

    def Logging(self, incoming: Any, context: Any) -> Iterator[Any]:
        """Hand entries on until the harness closes the stream."""
        stream = self._stream_of(context)
        # A harness may live longer than a job: the lines go to the job that uses it at the time.
        lines = LogLines(lambda: stream.sink)
        stream.begin()
        try:
            for entries in incoming:
                for entry in entries.log_entries:
                    if count := left_out_by(entry):
                        lines.leave_out(count)
                    elif mark := mark_of(entry):
                        lines.report_left_out()
                        stream.reach(mark)
                    else:
                        if category := take_category(entry):
                            put_category(entry, category)
                        if is_of_boot_program(entry):
                            stream.keep(f"{entry.message}\n".encode())
                        if not is_chatter(entry) and lines.has_room():
                            _split_trace(entry)
                            lines.send(entry)
                lines.report_left_out()
        except grpc.RpcError:
            pass  # the harness is gone; its control stream fails whoever waits for it
        finally:
            stream.end()
        yield from ()
