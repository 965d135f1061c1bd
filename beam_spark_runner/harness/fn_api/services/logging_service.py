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
    put_logger,
)
from beam_spark_runner.harness.beam.plugin.sdk_logging import (
    left_out_by,
    mark_of,
    take_category,
    take_logger,
)


class LogStream:
    """The log stream of one SDK harness: its log sink, and the last mark that has been read.

    A harness that has this package ends the lines of a bundle with a numbered mark.

    Threads: any.
    """

    def __init__(self) -> None:
        self.sink: LogSink = STDERR
        self.keep: Callable[[bytes], None] = lambda line: None
        """Takes the output lines that a container's boot program logs, for error messages."""
        self._mark = 0
        self._is_broken = False
        self._changed = threading.Condition()

    def begin(self) -> None:
        """Begin the stream, for the first time or again."""
        self._is_broken = False

    def end(self) -> None:
        """End the stream, and all waiting for its marks."""
        with self._changed:
            self._is_broken = True
            self._changed.notify_all()

    def reach(self, mark: int) -> None:
        """Record that all lines before a mark have been passed on."""
        with self._changed:
            self._mark = mark
            self._changed.notify_all()

    def wait_for(self, mark: int, timeout_s: float) -> bool:
        """Wait until a mark is reached; return False on a timeout or if the stream has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._mark >= mark or self._is_broken, timeout_s)
            return self._mark >= mark


def _split_trace(entry: beam_fn_api_pb2.LogEntry) -> None:
    """Remove a traceback from the message: Beam's Python SDK sends it there and in ``trace``."""
    entry.trace = entry.trace.rstrip()
    if entry.trace:
        entry.message = entry.message.replace(entry.trace, "", 1).rstrip()


class LoggingService(beam_fn_api_pb2_grpc.BeamFnLoggingServicer):  # type: ignore[misc]
    """The gRPC servicer. ``stream_of`` finds the stream of the calling harness."""

    def __init__(self, stream_of: Callable[[Any], LogStream]) -> None:
        self._stream_of = stream_of

    def Logging(self, incoming: Any, context: Any) -> Iterator[Any]:
        """Pass log entries on until the harness closes the stream."""
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
                        elif name := take_logger(entry):
                            put_logger(entry, name)
                        if is_of_boot_program(entry):
                            stream.keep(f"{entry.message}\n".encode())
                        if not is_chatter(entry) and lines.has_room():
                            _split_trace(entry)
                            lines.send(entry)
                lines.report_left_out()
        except grpc.RpcError:
            pass  # the harness has ended, which the control stream reports
        finally:
            stream.end()
        yield from ()
