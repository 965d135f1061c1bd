"""PySpark's daemon, with everything that a task of ours imports loaded before it forks.

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


def load() -> None:
    """Import what tasks need. What fails here fails again in the worker, which reports it."""
    # What a library has to say when it is imported, it has said in the driver.
    logging.disable(logging.ERROR)
    try:
        for name in ("pyspark.worker", "beam_spark_runner.spark.task"):
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    finally:
        logging.disable(logging.NOTSET)


def unshare_randomness() -> None:
    """Seed numpy's generator anew in each worker, as Python does with its own."""
    with contextlib.suppress(ImportError):
        import numpy as np

        os.register_at_fork(after_in_child=np.random.seed)


if __name__ == "__main__":
    from pyspark import daemon

    from beam_spark_runner.spark.collection import exempt_from_collection

    load()
    exempt_from_collection()
    unshare_randomness()
    daemon.manager()
