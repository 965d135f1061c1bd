"""The logging service: what code in an SDK harness logs."""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc

from beam_spark_runner.harness import backchannel
from beam_spark_runner.harness.log_flood import left_out_by
from beam_spark_runner.harness.log_lines import LogLines, is_chatter


class _Connection(Protocol):
    @property
    def worker_id(self) -> str: ...


class LoggingService(beam_fn_api_pb2_grpc.BeamFnLoggingServicer):  # type: ignore[misc]
    """The gRPC side. ``connection_of`` finds who calls."""

    def __init__(self, connection_of: Callable[[Any], _Connection]) -> None:
        self._connection_of = connection_of

    def Logging(self, incoming: Any, context: Any) -> Iterator[Any]:
        """Hand entries on until the harness closes the stream."""
        self._connection_of(context)
        # A harness may live longer than a job: the lines go to whoever is told at the time.
        lines = LogLines(backchannel.current)
        try:
            for entries in incoming:
                for entry in entries.log_entries:
                    if count := left_out_by(entry):
                        lines.leave_out(count)
                    elif not is_chatter(entry) and lines.has_room():
                        lines.send(entry)
                lines.tell_left_out()
        except grpc.RpcError:
            pass  # the harness is gone; whoever waits for it is told by its control stream
        yield from ()
