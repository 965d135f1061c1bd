"""The error of a stream that this process can no longer read."""

import socket
import tempfile

from beam_spark_runner.core.errors import HarnessStreamError


def reading_failed(error: Exception, stream: str) -> HarnessStreamError:
    """Return the error with which bundles fail after an exception in a stream's reading thread.

    Args:
        error: The exception.
        stream: The name of the stream: control or data.
    """
    problem = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):  # a full inbox is in a file
        problem += f"; its files are in {tempfile.gettempdir()} of {socket.gethostname()}"
    failure = HarnessStreamError(
        f"the runner could not continue to read the {stream} stream: {problem}"
    )
    failure.__cause__ = error
    return failure
