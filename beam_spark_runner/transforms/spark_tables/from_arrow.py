"""Converts Arrow batches to Beam's rows, column by column."""

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from apache_beam.pvalue import Row
from apache_beam.utils.timestamp import Timestamp

_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
_BYTES = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
)


def batches_in(coded: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow stream."""
    with pa.ipc.open_stream(pa.py_buffer(coded)) as reader:
        yield from reader


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows of a batch."""
    return _rows(tuple(batch.schema.names), batch.columns)


def _rows(names: tuple[str, ...], columns: list[pa.Array]) -> list[Row]:
    return _builder(names)([values_of(column) for column in columns])


@functools.lru_cache(maxsize=256)
def _builder(names: tuple[str, ...]) -> Callable[[list[list[Any]]], list[Row]]:
    """Return a function that converts lists of the values of each column to rows.

    The function is generated for these names, as ``collections.namedtuple`` does: with a dict
    display, a row takes half the time of a loop over the names.
    """
    variables = [f"value{number}" for number in range(len(names))]
    fields = ", ".join(
        f"{name!r}: {variable}" for name, variable in zip(names, variables, strict=True)
    )
    code = (
        "def build(columns):\n"
        "    rows = []\n"
        "    add = rows.append\n"
        f"    for {', '.join(variables)}, in zip(*columns):\n"
        "        row = new(Row)\n"
        f"        row.__dict__ = {{{fields}}}\n"
        "        add(row)\n"
        "    return rows\n"
    )
    namespace: dict[str, Any] = {"new": Row.__new__, "Row": Row}
    exec(code, namespace)
    build: Callable[[list[list[Any]]], list[Row]] = namespace["build"]
    return build


def values_of(array: pa.Array) -> list[Any]:
    """Return the values of an array in the Python types of docs/spark_tables.md."""
    type_ = array.type
    if any(is_one(type_) for is_one in _BYTES) or (
        not array.null_count and any(is_one(type_) for is_one in _NUMBERS)
    ):
        # Several times as fast as ``to_pylist``. With nulls, it would convert integers to floats.
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    elif pa.types.is_timestamp(type_) and type_.tz is not None:
        micros = array.cast(pa.timestamp("us", type_.tz)).cast(pa.int64()).to_pylist()
        values = [None if time_us is None else Timestamp(micros=time_us) for time_us in micros]
    elif pa.types.is_time(type_):
        values = array.cast(pa.time64("us"), safe=False).to_pylist()
    elif pa.types.is_struct(type_):
        names = tuple(field.name for field in type_)
        values = _rows(names, array.flatten()) if names else [Row() for _ in range(len(array))]
    elif pa.types.is_map(type_):
        keys, items = values_of(array.keys), values_of(array.items)
        values = [
            dict(zip(keys[start:end], items[start:end], strict=True))
            for start, end in _bounds(array)
        ]
    elif pa.types.is_list(type_) or pa.types.is_large_list(type_):
        elements = values_of(array.values)
        values = [elements[start:end] for start, end in _bounds(array)]
    else:
        values = array.to_pylist()
    if pa.types.is_nested(type_) and array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False).tolist()
        values = [
            value if is_valid else None for value, is_valid in zip(values, valid, strict=True)
        ]
    return values


def _bounds(array: pa.Array) -> Iterator[tuple[int, int]]:
    offsets = array.offsets.to_numpy(zero_copy_only=False).tolist()
    return itertools.pairwise(offsets)
