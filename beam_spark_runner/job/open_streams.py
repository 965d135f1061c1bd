"""The end of the streams that a program reads from a job server."""

import atexit
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import grpc

_LOGGER = logging.getLogger(__name__)
_MOST_END_S = 5.0
_STREAMS: "weakref.WeakSet[Any]" = weakref.WeakSet()


class StreamsOfProgram(grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Registers the streams of a channel, to be ended before the interpreter."""

    def intercept_unary_stream(
        self, continuation: Callable[[Any, Any], Any], details: Any, request: Any
    ) -> Any:
        """See ``grpc.UnaryStreamClientInterceptor``."""
        stream = continuation(details, request)
        _STREAMS.add(stream)
        return stream


@atexit.register
def end_streams() -> None:
    """Cancel the streams that are open, and wait until gRPC's threads have handled their ends.

    The interpreter stops such a thread wherever it is. If that is where it has the lock of a
    stream, the interpreter waits for the lock when it deletes the stream: forever.
    """
    for stream in list(_STREAMS):
        has_ended = threading.Event()
        if stream.add_callback(has_ended.set):
            stream.cancel()
            if not has_ended.wait(_MOST_END_S):
                _LOGGER.warning("gRPC has not ended a stream within %g s", _MOST_END_S)
