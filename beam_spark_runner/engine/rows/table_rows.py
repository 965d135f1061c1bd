"""Rows of tables between Spark and tasks: Arrow batches, each as the value of one row.

A Spark job reads each table as a column of structs, next to the columns of ``rows.schema``. A task
makes rows of these columns: then a batch of a table is an element like any other.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import attempts_in

_COLUMN = "table"


def column_of(dest: int) -> str:
    """Return the name of the column that has the rows of a table for a destination."""
    return f"{_COLUMN}{dest}"


def with_tables(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a task's input as ``rows.schema`` has them.

    Args:
        batches: as Spark gives them. All of them have the same columns: those of the schema, those
            of tables, or both.
    """
    for batch in batches:
        names = batch.schema.names
        if names[-1:] == ["value"]:
            yield batch
            continue
        dests = None
        if names[0] == "dest":
            dests = schema.dests_of(batch)
        for number, name in enumerate(names):
            if not name.startswith(_COLUMN):
                continue
            dest = int(name.removeprefix(_COLUMN))
            rows = batch.column(number)
            if dests is not None:
                rows = rows.filter(pa.array(dests == dest))
            if len(rows):
                yield _row_of(dest, pa.RecordBatch.from_struct_array(rows))
        if dests is not None:
            columns = len(schema.ARROW_SCHEMA)
            others = pa.RecordBatch.from_arrays(batch.columns[:columns], schema=schema.ARROW_SCHEMA)
            tables = [int(name.removeprefix(_COLUMN)) for name in names[columns:]]
            is_other = ~np.isin(dests, tables)
            if is_other.any():
                yield others.filter(pa.array(is_other))


def _row_of(dest: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    value: bytes = sink.getvalue().to_pybytes()
    return schema.batch_of(dest, np.zeros(1, np.int64), None, None, [value])


def count_rows(coded: bytes) -> int:
    """Return how many rows an Arrow stream has."""
    with pa.ipc.open_stream(pa.py_buffer(coded)) as reader:
        return sum(batch.num_rows for batch in reader)


class OtherAttemptError(Exception):
    """A task has read rows of another attempt than those that were accepted."""

    @classmethod
    def is_in(cls, error: BaseException) -> bool:
        """Whether a task of a Spark job has raised it: Spark has what tasks raise only as text."""
        return f"{cls.__name__}: " in str(error)


def writing_function(
    dest: int, table_schema: pa.Schema, accepted: frozenset[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` that turns materialised rows into rows of a table.

    Args:
        dest: the destination of the table; rows of others are left out.
        table_schema: the columns of the table. Values that do not fit raise ValueError.
        accepted: the numbers of the task attempts whose rows are written. The mark of another
            attempt raises OtherAttemptError before the task ends, so that Spark commits none of
            its rows.
    """

    def write_table(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        joiner = schema.PieceJoiner()
        for batch in batches:
            dests = schema.dests_of(batch)
            marks = batch.filter(pa.array(dests == schema.CONTROL)).column("value")
            for run, attempts in attempts_in(marks.to_pylist()).items():
                if not accepted.issuperset(attempts):
                    raise OtherAttemptError(
                        f"run {run}: rows of attempts {attempts} are there, which are not among "
                        f"the {len(accepted)} that were accepted"
                    )
            rows = batch.filter(pa.array(dests == dest))
            for value in joiner.join_block(schema.block_of(rows)).values:
                with pa.ipc.open_stream(pa.py_buffer(value)) as reader:
                    for table_rows in reader:
                        yield conformed(table_rows, table_schema)
        joiner.check_empty()

    return write_table


def conformed(batch: pa.RecordBatch, table_schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of a table.

    Raises:
        ValueError: a value does not fit.
    """
    columns = []
    for field in table_schema:
        column = batch.column(field.name)
        try:
            columns.append(column.cast(field.type))
        except pa.ArrowException as error:
            raise ValueError(
                f"column {field.name}: a value does not fit into {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=table_schema)
