"""Refuses several writes to one target, unless all of them append rows of one schema.

Their order is not determined, and the content of the target would depend on it.
"""

import re
from collections.abc import Iterable

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.table_steps import TableWrite, database_of
from beam_spark_runner.core.table_types import columns_of
from beam_spark_runner.spark.driver.table_writes import OpenWrite


def check_targets(writes: Iterable[OpenWrite]) -> list[TableError]:
    """Return an error for each write that conflicts with an earlier one to the same target."""
    errors = []
    first: dict[tuple[str, ...], OpenWrite] = {}
    for write in writes:
        target = _target(write.write)
        earlier = first.setdefault(target, write)
        if earlier is write or not any(target) or _append_same_columns(earlier.write, write.write):
            continue
        problem = (
            f"it writes {write.write}, which {earlier.step} writes, too: several writes may only "
            "append to one target, and their rows must have the same columns. Flatten the "
            "collections, or write them in separate pipelines"
        )
        errors.append(TableError(problem, write.step))
    return errors


def _target(write: TableWrite) -> tuple[str, ...]:
    if write.table:
        return ("table", write.table.lower())
    if write.path:
        # Hadoop takes file:/data and file:///data for the same folder.
        return ("path", re.sub("^file:/+", "/", write.path).rstrip("/"))
    return database_of(write.options)


def _append_same_columns(first: TableWrite, second: TableWrite) -> bool:
    columns = [
        {(column.name, str(column.type)) for column in columns_of(write.schema)}
        for write in (first, second)
    ]
    return first.mode == second.mode == "append" and columns[0] == columns[1]
