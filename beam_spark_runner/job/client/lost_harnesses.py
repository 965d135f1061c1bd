"""Beam's SDK harnesses in a client with LOOPBACK, whose Python workers are lost with the server."""

import logging
import threading
from collections.abc import Callable

import grpc

from beam_spark_runner.job.client.submitted import LOST

_LOGGER = logging.getLogger(__name__)
_OF_INPUTS = logging.getLogger("apache_beam.runners.worker.data_plane")
_THREADS = ("run_worker_", "read_grpc_client_inputs", "read_state")
"""How the names of the threads begin that read from the Python worker of a harness."""


def log_losses_at_debug() -> None:
    """Log the end of a harness that has lost its worker at DEBUG; Beam prints three tracebacks.

    The client itself says that the server is lost. All other errors of threads are handled as
    before. May be called again.
    """
    if not isinstance(threading.excepthook, _Hook):
        threading.excepthook = _Hook(threading.excepthook)
    _OF_INPUTS.addFilter(_is_news)


class _Hook:
    """A ``threading.excepthook``.

    Args:
        previous: The hook for everything else.
    """

    def __init__(self, previous: Callable[[threading.ExceptHookArgs], object]) -> None:
        self._previous = previous

    def __call__(self, args: threading.ExceptHookArgs) -> None:
        name = "" if args.thread is None else args.thread.name
        if name.startswith(_THREADS) and _is_loss(args.exc_value):
            _LOGGER.debug("%s: %s", name, args.exc_value)
        else:
            self._previous(args)


def _is_news(record: logging.LogRecord) -> bool:
    return not record.exc_info or not _is_loss(record.exc_info[1])


def _is_loss(error: BaseException | None) -> bool:
    if not (isinstance(error, grpc.RpcError) and isinstance(error, grpc.Call)):
        return False  # it is no call that has failed
    return error.code() in LOST
