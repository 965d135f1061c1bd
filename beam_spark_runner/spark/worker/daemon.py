"""PySpark's daemon, which imports everything that tasks need before it forks workers.

Its workers are then ready at once, and share the memory of what they have
loaded. Spark runs it by ``python -m``, in the sessions that this runner starts
on this machine.

Forking is sound: no gRPC channel or server exists here, and the threads that
numpy's and Arrow's libraries start know about forks. (PySpark itself imports
after the fork, so as to be safe from any library.)
"""

import contextlib
import importlib
import logging
import os
import socket
from collections.abc import Callable

Worker = Callable[[socket.socket, bool], int]


def load() -> None:
    """Import what tasks need. What fails here fails again in the worker, which reports it."""
    # The driver has already logged what libraries log when they are imported.
    logging.disable(logging.ERROR)
    try:
        for name in ("pyspark.worker", "beam_spark_runner.spark.worker.level_tasks"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    finally:
        logging.disable(logging.NOTSET)


def unshare_randomness() -> None:
    """Seed numpy's generator again in each worker, as Python does with its own."""
    with contextlib.suppress(ImportError):
        import numpy as np

        os.register_at_fork(after_in_child=np.random.seed)


def quiet_once_spark_is_gone(worker: Worker) -> Worker:
    """Let a worker end in silence if Spark has closed its socket, to end or cancel its task."""

    def run(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except ConnectionError:  # nobody reads the rest of its output
            return 1

    return run


if __name__ == "__main__":
    from pyspark import daemon

    from beam_spark_runner.engine.task.garbage_collection import exempt_from_collection

    load()
    exempt_from_collection()
    unshare_randomness()
    # PySpark calls it by position.
    daemon.worker = quiet_once_spark_is_gone(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
