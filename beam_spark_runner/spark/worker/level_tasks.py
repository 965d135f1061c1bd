"""Runs tasks of the engine as tasks of Spark, in its Python workers."""

from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Client

import pyarrow as pa
from pyspark import TaskContext

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.task import resident_server, shard_copying, stored_rows
from beam_spark_runner.engine.task.first_task import begin_segment
from beam_spark_runner.engine.task.shard_copying import Resharding
from beam_spark_runner.engine.task.stored_output import OutputReading
from beam_spark_runner.engine.task.stored_rows import StoredRows
from beam_spark_runner.engine.task.task import LevelTask, at_home
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.spark.worker.hosting import stay_while_hosting

_NEW_SHARDS = pa.schema(
    [
        ("level", pa.int32()),
        ("partition", pa.int32()),
        ("store", pa.int32()),
        ("attempt", pa.int64()),
        ("place", pa.string()),
        ("problem", pa.string()),
    ]
)


def run_level(program: LevelProgram, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a task of a level; see ``functions.level_function``."""
    stay_while_hosting(worker.wait_for_ends)
    with at_home(program):
        context = TaskContext.get()
        partition, attempt_number = _place_of(context)
        if partition in program.finished:
            yield from _in_place_of(batches, ())
            return
        batch, epoch = program.batch, program.epoch
        if context is not None and epoch is not None and epoch.rows_from is not None:
            rows = schema.batches_of_text(_property_of(context, epoch.rows_from))
            batches = _in_place_of(batches, rows)
        elif batch is not None and batch.driver_rows:
            batches = rows_of_driver(batch.driver_rows, batches)
        yield from LevelTask(program, partition, attempt_number).run(batches)


def run_segment(
    programs: Sequence[LevelProgram], batches: Iterator[pa.RecordBatch], budget_s: float
) -> Iterator[pa.RecordBatch]:
    """Run the only task of a segment's first Spark job; see ``functions.first_task_function``."""
    stay_while_hosting(worker.wait_for_ends)
    _, attempt_number = _place_of(TaskContext.get())
    coded = begin_segment(programs, budget_s, attempt_number)
    rows = pa.RecordBatch.from_pydict(
        {"value": pa.array([] if coded is None else [coded], pa.binary())}
    )
    yield from _in_place_of(batches, [rows])


def rows_of_driver(coded: bytes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in a program.

    Args:
        coded: the rows, see ``schema.coded_batches``.
        batches: the input that Spark passes to the task, which is ignored.
    """
    yield from _in_place_of(batches, schema.decoded_batches(coded))


def read_stored_rows(
    stored: StoredRows, names_from: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run a task that reads rows of an earlier Spark job; see ``functions.reading_function``."""
    context = TaskContext.get()
    partition, attempt_number = _place_of(context)
    names = [name for batch in batches for name in batch.column(0).to_pylist()]
    if context is not None and names_from is not None:
        names = _property_of(context, names_from).split("\n")[partition : partition + 1]
    (name,) = names
    yield from stored_rows.read_rows(stored, name, partition, attempt_number)


def read_output(
    reading: OutputReading, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run a task that reads rows which a task has stored; see ``functions.output_function``."""
    # Of its own rows: the number of a Spark task counts over a union.
    (number,) = (number for batch in batches for number in batch.column(0).to_pylist())
    yield from reading.read(number)


def make_shards(
    resharding: Resharding, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run a task that makes new shards; see ``functions.resharding_function``."""
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    for shard in shard_copying.make_shards(resharding, numbers):
        yield pa.RecordBatch.from_pylist([shard._asdict()], _NEW_SHARDS)


def serve_driver(
    address: str, idle_s: float, max_s: float, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run a task that serves the driver; see ``functions.serving_function``."""
    stay_while_hosting(worker.wait_for_ends)
    with Client(address, "AF_UNIX") as driver:
        resident_server.serve(driver, idle_s, max_s)
    yield from _in_place_of(batches, ())


def _in_place_of(
    batches: Iterator[pa.RecordBatch], rows: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield rows, and ignore the input of the task: Spark ends a worker that does not read it."""
    yield from rows
    for _ in batches:
        pass


def _place_of(context: TaskContext | None) -> tuple[int, int]:
    """Return the partition of a Spark task, and how many attempts Spark has made before it."""
    if context is None:
        return 0, 0
    return context.partitionId(), context.attemptNumber()


def _property_of(context: TaskContext, name: str) -> str:
    """Return a local property of the Spark job."""
    value = context.getLocalProperty(name)
    if value is None:
        raise InvariantError(f"the Spark job has no local property {name}")
    return str(value)
