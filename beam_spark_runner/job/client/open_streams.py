"""Ends the streams that a program reads from a job server, before the interpreter exits."""

import atexit
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import grpc
from typing_extensions import override

_LOGGER = logging.getLogger(__name__)
_MAX_END_S = 5.0
_STREAMS: "weakref.WeakSet[Any]" = weakref.WeakSet()


class StreamsOfProgram(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Registers the response streams of a channel, for ``end_streams``."""

    @override
    def intercept_unary_stream(
        self, continuation: Callable[[Any, Any], Any], details: Any, request: Any
    ) -> Any:
        stream = continuation(details, request)
        _STREAMS.add(stream)
        return stream


@atexit.register
def end_streams() -> None:
    """Cancel the open streams, and wait until gRPC's threads have handled their ends.

    At exit, the interpreter stops these daemon threads anywhere. If one of them then holds the lock
    of a stream, the interpreter deadlocks when it deletes the stream.
    """
    for stream in list(_STREAMS):
        has_ended = threading.Event()
        if stream.add_callback(has_ended.set):
            stream.cancel()
            if not has_ended.wait(_MAX_END_S):
                _LOGGER.warning("gRPC has not ended a stream within %g s", _MAX_END_S)
