"""Rows of tables that may be written: those of the task attempts that were accepted.

Materialised rows may exist twice: two executors may have the rows of two attempts at one task, and
each reader gets either. A write cannot be undone, so attempts are compared before it: one Spark job
reads all marks, and each task of the write checks the marks that it reads itself.
"""

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.table_types import columns_of
from beam_spark_runner.driving.output_rows import AmbiguousRowsError, OutputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.marks import attempts_in
from beam_spark_runner.engine.rows.table_rows import writing_function
from beam_spark_runner.scheduling.attempts import Ambiguous, Attempts, ambiguous_runs
from beam_spark_runner.spark.driver.frame_rows import frame_of
from beam_spark_runner.spark.driver.table_schemas import struct_type
from beam_spark_runner.transforms.spark_tables.to_arrow import arrow_type

_REASON = "there are rows of a table from other attempts than the accepted ones"


@dataclass(frozen=True, slots=True)
class RowsToWrite:
    """Rows of one table.

    Attributes:
        count: how many there are.
    """

    count: int
    _rows: OutputRows
    _dest: DestinationId
    _attempts: frozenset[int]

    def frame(self, table_schema: str) -> DataFrame:
        """Return the rows with the columns of the table.

        Its tasks raise ``OtherAttemptError`` before they end if they read rows of other attempts.

        Args:
            table_schema: the schema of the table, as Spark's JSON.
        """
        columns = columns_of(table_schema)
        arrow_schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
        write_table = writing_function(int(self._dest), arrow_schema, self._attempts)
        return frame_of(self._rows.rows).mapInArrow(write_table, struct_type(table_schema))

    def ambiguous(self) -> AmbiguousRowsError:
        """Return the error for a write whose tasks have read rows of other attempts."""
        return AmbiguousRowsError(Ambiguous(frozenset(self._rows.made_by), _REASON))


def rows_to_write(rows: OutputRows, dest: DestinationId) -> RowsToWrite:
    """Count the rows of a table, and check which attempts have made them. Runs a Spark job.

    Args:
        rows: materialised rows, of all destinations.
        dest: the destination of the table.

    Raises:
        AmbiguousRowsError: they are not of the accepted attempts.
    """
    # Rows travel in batches; of a batch that travels in pieces, the first piece says how many.
    is_first = (
        f"(dest & {schema.PIECE}) = 0 or hex(substring(value, {schema.PIECE_POSITION + 1}, 4)) = "
        "'00000000'"
    )
    is_mine = f"(dest & {schema.DEST_MASK}) = {int(dest)} and ({is_first})"
    is_mark = f"dest = {schema.CONTROL}"
    (summary,) = (
        frame_of(rows.rows)
        .filter(f"{is_mark} or ({is_mine})")
        .selectExpr(
            f"coalesce(sum(if({is_mark}, 0, `order`)), cast(0 as bigint)) as count",
            f"collect_list(if({is_mark}, value, null)) as marks",
        )
        .collect()
    )
    attempts = attempts_in(summary["marks"])
    consumed = {run: Attempts.of(ids) for run, ids in attempts.items()}
    if runs := ambiguous_runs([consumed], rows.made_by, is_exchanged=False):
        raise AmbiguousRowsError(Ambiguous(runs, _REASON))
    numbers = frozenset(number for ids in attempts.values() for number in ids)
    return RowsToWrite(int(summary["count"]), rows, dest, numbers)
