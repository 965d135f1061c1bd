"""Finds nulls in columns that are not nullable."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from beam_spark_runner.core.table_types import Column, SparkType, fields_of


def null_of_required(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> str | None:
    """Return the path of a non-nullable column, or part of one, that has a null; None: no such.

    Args:
        columns: The columns of the schema.
        arrays: The values of each column.

    Example:
        tags ARRAY<STRING NOT NULL>, [["a", None]]   ==>   tags[]
    """
    for column, array in zip(columns, arrays, strict=True):
        if array.null_count and not column.is_nullable:
            return column.name
        for path in _nulls_in(column.type, array, column.name):
            return path
    return None


def _nulls_in(type_: SparkType, array: pa.Array, path: str) -> Iterator[str]:
    """Yield the paths of nulls inside the values of an array, map or struct column."""
    if isinstance(type_, str):
        return
    present = array.drop_null() if array.null_count else array
    if type_["type"] == "array":
        parts = [(type_["elementType"], type_["containsNull"], present.flatten(), f"{path}[]")]
    elif type_["type"] == "map":
        first, end = present.offsets[0].as_py(), present.offsets[-1].as_py()
        items = present.items.slice(first, end - first)
        parts = [(type_["valueType"], type_["valueContainsNull"], items, f"{path}[value]")]
    else:
        parts = [
            (field.type, field.is_nullable, column, f"{path}.{field.name}")
            for field, column in zip(fields_of(type_), present.flatten(), strict=True)
        ]
    for part_type, is_nullable, part, part_path in parts:
        if part.null_count and not is_nullable:
            yield part_path
        yield from _nulls_in(part_type, part, part_path)
