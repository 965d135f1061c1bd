"""The functions that Spark runs in its Python workers.

What they call is imported in the workers: the driver runs no tasks, and would spend a third of its
own imports on it.
"""

from collections.abc import Callable, Iterator
from multiprocessing.connection import Client

import pyarrow as pa

from beam_spark_runner.spark.program import LevelProgram


def level_function(
    program: LevelProgram,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``. Spark's UI shows its name."""

    def run_level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.task import task

        yield from task.run_level(program, batches)

    run_level.__name__ = run_level.__qualname__ = program.title
    return run_level


def serving_function(
    address: str,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` whose task connects to the driver, and serves it.

    Args:
        address: the path of the socket at which the driver listens.
    """

    def serve_epochs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.task import epoch_server

        with Client(address, "AF_UNIX") as driver:
            epoch_server.serve(driver)
        for _ in batches:  # Spark ends a worker that does not read them
            pass
        yield from ()

    return serve_epochs
