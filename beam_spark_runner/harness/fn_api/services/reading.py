"""Ends a stream that this process can no longer read."""

import socket
import tempfile

from beam_spark_runner.core.errors import HarnessStreamError


def reading_failed(error: Exception, stream: str) -> HarnessStreamError:
    """Return the error that bundles get for one in the thread that reads a stream.

    Args:
        error: what was raised.
        stream: control or data.
    """
    problem = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):  # what waits to be taken may be large, and is then in files
        problem += f"; its files are in {tempfile.gettempdir()} of {socket.gethostname()}"
    failure = HarnessStreamError(
        f"the runner could not continue to read the {stream} stream: {problem}"
    )
    failure.__cause__ = error
    return failure
