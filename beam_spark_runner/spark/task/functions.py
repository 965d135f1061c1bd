"""The functions that Spark runs in its Python workers.

What they call is imported in the workers: the driver runs no tasks, and would spend a third of its
own imports on it.
"""

from collections.abc import Callable, Iterator, Sequence
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


def first_task_function(
    programs: Sequence[LevelProgram], title: str, budget_s: float
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` whose only task begins a segment; see ``first_task``.

    Args:
        programs: the programs of the segment's levels.
        title: the name in Spark's UI.
        budget_s: the time after which the task stops.
    """

    def run_segment(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.task import first_task

        yield from first_task.run_segment(programs, batches, budget_s)

    run_segment.__name__ = run_segment.__qualname__ = title
    return run_segment


def feeding_function(
    rows: bytes,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` whose only task yields rows that the driver has.

    Args:
        rows: see ``schema.coded_batches``.
    """

    def feed_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.task import input as task_input

        yield from task_input.rows_fed(rows, batches)

    return feed_rows


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
