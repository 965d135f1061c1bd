"""The functions that Spark runs in its Python workers.

What they call is imported in the workers: the driver runs no tasks, and would spend a third of its
own imports on it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from beam_spark_runner.engine.program import LevelProgram

if TYPE_CHECKING:
    from beam_spark_runner.engine.task.shard_copying import Resharding
    from beam_spark_runner.engine.task.stored_output import OutputReading
    from beam_spark_runner.engine.task.stored_rows import StoredRows
    from beam_spark_runner.engine.task.table_files import TableFiles

ForMapInArrow = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def level_function(program: LevelProgram, reading: "OutputReading | None" = None) -> ForMapInArrow:
    """Return the function for ``mapInArrow``. The Spark UI shows its name.

    Args:
        program: the program of the level.
        reading: stored rows, of which each task reads a file. Its input has the number of the file.
            None: its input has the rows.
    """

    def run_level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.worker import level_tasks

        if reading is not None:
            batches = level_tasks.read_output(reading, batches)
        yield from level_tasks.run_level(program, batches)

    run_level.__name__ = run_level.__qualname__ = program.title
    return run_level


def first_task_function(
    programs: Sequence[LevelProgram], title: str, budget_s: float
) -> ForMapInArrow:
    """Return the function for ``mapInArrow`` whose only task begins a segment; see ``first_task``.

    It yields one value with all rows and reports, see ``schema.coded_batches``, or none if it gives
    up. Its input means nothing.

    Args:
        programs: the programs of the segment's levels.
        title: the name in the Spark UI.
        budget_s: the time after which the task stops.
    """

    def run_segment(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.worker import level_tasks

        yield from level_tasks.run_segment(programs, batches, budget_s)

    run_segment.__name__ = run_segment.__qualname__ = title
    return run_segment


def values_function(function: ForMapInArrow) -> Callable[[Iterable[Any]], Iterable[bytes]]:
    """Return the function of an RDD that yields the values of a function for ``mapInArrow``.

    Args:
        function: its input means nothing; its only column is binary.
    """

    def values(rows: Iterable[Any]) -> Iterator[bytes]:
        for batch in function(iter(())):
            yield from batch.column(0).to_pylist()
        for _ in rows:  # Spark ends a worker that does not read it
            pass

    return values


def feeding_function(rows: bytes) -> ForMapInArrow:
    """Return the function for ``mapInArrow`` whose only task yields rows that the driver has.

    Args:
        rows: see ``schema.coded_batches``.
    """

    def feed_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.worker import level_tasks

        yield from level_tasks.rows_of_driver(rows, batches)

    return feed_rows


def reading_function(stored: "StoredRows", names_from: str | None) -> ForMapInArrow:
    """Return the function for ``mapInArrow`` whose tasks each yield the rows of one file.

    Args:
        stored: see ``stored_rows.read_rows``.
        names_from: the local property of the Spark job with the names of the files, a line for
            each partition; None: the task's input has them.
    """

    def read_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.worker import level_tasks

        yield from level_tasks.read_stored_rows(stored, names_from, batches)

    return read_rows


def output_function(reading: "OutputReading") -> ForMapInArrow:
    """Return the function for ``mapInArrow`` whose tasks each yield the stored rows of one task.

    Args:
        reading: which rows. The input of a task has the number of its file.
    """

    def read_output(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.worker import level_tasks

        yield from level_tasks.read_output(reading, batches)

    return read_output


def table_files_function(files: "TableFiles") -> ForMapInArrow:
    """Return the function for ``mapInArrow`` whose tasks yield the rows of files for a table.

    Args:
        files: where they are. The input of a task has the names of its files.
    """

    def read_rows_of_epoch(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from files.read(name for batch in batches for name in batch.column(0).to_pylist())

    return read_rows_of_epoch


def numbered_table_files_function(files: "TableFiles", number_name: str) -> ForMapInArrow:
    """Return the function for ``mapInArrow`` whose tasks yield rows of files, and number them.

    A row has the same number in each attempt, and no other row of the files has it.

    Args:
        files: where they are. The input of a task has the names of its files, and their numbers.
        number_name: the name of the column with the number of a row, which is the last one.
    """

    def read_numbered_rows_of_epoch(
        batches: Iterator[pa.RecordBatch],
    ) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            names, numbers = (column.to_pylist() for column in batch.columns)
            for name, number in zip(names, numbers, strict=True):
                yield from files.read_numbered(name, number, number_name)

    return read_numbered_rows_of_epoch


def serving_function(address: str, idle_s: float, max_s: float) -> ForMapInArrow:
    """Return the function for ``mapInArrow`` whose task connects to the driver, and serves it.

    Args:
        address: the path of the socket at which the driver listens.
        idle_s: see ``resident_server.serve``.
        max_s: see ``resident_server.serve``.
    """

    def serve_driver(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.worker import level_tasks

        yield from level_tasks.serve_driver(address, idle_s, max_s, batches)

    return serve_driver


NEW_SHARDS = "level int, partition int, store int, attempt long, place string, problem string"
"""The fields of ``engine.task.shard_copying.NewShard``."""


def resharding_function(resharding: "Resharding") -> ForMapInArrow:
    """Return the function for ``mapInArrow`` whose tasks make new shards; see ``NEW_SHARDS``.

    Args:
        resharding: which shards are made. The input has the indices of those of a task.
    """

    def make_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from beam_spark_runner.spark.worker import level_tasks

        yield from level_tasks.make_shards(resharding, batches)

    return make_shards
