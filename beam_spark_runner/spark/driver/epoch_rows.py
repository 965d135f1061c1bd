"""The rows of an epoch for a table, as frames of Spark."""

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType

from beam_spark_runner.core.table_types import columns_of
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task.table_files import TableFiles
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.spark.driver.table_schemas import struct_type
from beam_spark_runner.spark.driver.table_writes import OpenWrite
from beam_spark_runner.spark.worker.task_functions import (
    numbered_table_files_function,
    table_files_function,
)
from beam_spark_runner.transforms.spark_tables.to_arrow import arrow_type

_ROWS_OF_TASK = 50_000
"""Each task writes a file of the table: an epoch with few rows writes one."""


def rows_of_epoch(opened: OpenWrite, write: EpochWrite, places: ShardLocations) -> DataFrame:
    """Return the rows, with the columns of the table.

    Args:
        opened: the write of the table.
        write: the rows.
        places: where their files are.
    """
    reading = table_files_function(_files(opened, places))
    names = _names_of_files(opened, write).select("name")
    return names.mapInArrow(reading, struct_type(opened.schema))


def numbered_rows_of_epoch(
    opened: OpenWrite, write: EpochWrite, places: ShardLocations, number_name: str
) -> DataFrame:
    """Return the rows with one more column: a number, the same whenever the epoch is written.

    Args:
        opened: the write of the table.
        write: the rows.
        places: where their files are.
        number_name: the name of the column.
    """
    reading = numbered_table_files_function(_files(opened, places), number_name)
    columns = struct_type(opened.schema).add(number_name, LongType(), False)
    return _names_of_files(opened, write).mapInArrow(reading, columns)


def _files(opened: OpenWrite, places: ShardLocations) -> TableFiles:
    columns = columns_of(opened.schema)
    return TableFiles(places, pa.schema([(each.name, arrow_type(each.type)) for each in columns]))


def _names_of_files(opened: OpenWrite, write: EpochWrite) -> DataFrame:
    names = ", ".join(f"'{name}'" for name in write.files)
    count = len(write.files)
    tasks = max(1, min(count, write.rows // _ROWS_OF_TASK))
    numbers: DataFrame = opened.session.spark.range(0, count, 1, tasks)
    return numbers.selectExpr(f"element_at(array({names}), cast(id + 1 as int)) as name", "id")
