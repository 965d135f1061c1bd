"""Converts rows of any class to Arrow batches."""

import datetime
import functools
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.table_types import (
    Column,
    SparkType,
    columns_of,
    fields_of,
    kind_of,
    text_of_type,
)
from beam_spark_runner.transforms.spark_tables.nulls import null_of_required

_ATOMIC = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "time": pa.time64("ns"),
    "interval": pa.duration("us"),
}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
Prepare = Callable[[Any], Any]


class BatchEncoder:
    """Encodes rows as Arrow streams.

    Args:
        schema: The schema of the table in Spark's JSON.
    """

    def __init__(self, schema: str) -> None:
        self._columns = columns_of(schema)
        self._types = [arrow_type(column.type) for column in self._columns]
        self._prepare = [preparation(column.type) for column in self._columns]
        self._ready = [_ready(column.type) for column in self._columns]
        self._schema = pa.schema(
            [(column.name, type_) for column, type_ in zip(self._columns, self._types, strict=True)]
        )

    def encode(self, rows: Sequence[Any]) -> bytes:
        """Return a stream with one batch.

        Args:
            rows: Objects with attributes, or mappings; at least one, and all of the same kind.

        Raises:
            ValueError: A column is missing, null, or has a value of another type; the text names
                the column.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_batch(self.batch(rows))
        coded: bytes = sink.getvalue().to_pybytes()
        return coded

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """Return one batch. See ``encode``."""
        get = itemgetter if isinstance(rows[0], Mapping) else attrgetter
        arrays = [
            self._array(number, rows, get(column.name))
            for number, column in enumerate(self._columns)
        ]
        if (path := null_of_required(self._columns, arrays)) is not None:
            raise ValueError(f"column {path}: it may not be null, but a row has None")
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, number: int, rows: Sequence[Any], get: Prepare) -> pa.Array:
        column, prepare = self._columns[number], self._prepare[number]
        try:
            values = list(map(get, rows))
        except (KeyError, AttributeError) as error:
            raise ValueError(f"column {column.name}: a row does not have it: {error}") from error
        try:
            if prepare is not None and not self._ready[number].issuperset(map(type, values)):
                values = [None if value is None else prepare(value) for value in values]
            array = pa.array(values, self._types[number])
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(
                f"column {column.name}: a value does not fit into {text_of_type(column.type)}: "
                f"{error}"
            ) from error
        return array


def arrow_type(type_: SparkType) -> pa.DataType:
    """Return the Arrow type of a column in encoded batches."""
    if isinstance(type_, str):
        kind = kind_of(type_)
        if kind == "decimal":
            precision, scale = type_.removeprefix("decimal(").rstrip(")").split(",")
            return pa.decimal128(int(precision), int(scale))
        return _ATOMIC[kind]
    if type_["type"] == "array":
        return pa.list_(arrow_type(type_["elementType"]))
    if type_["type"] == "map":
        return pa.map_(arrow_type(type_["keyType"]), arrow_type(type_["valueType"]))
    return pa.struct([(field.name, arrow_type(field.type)) for field in fields_of(type_)])


def preparation(type_: SparkType) -> Prepare | None:
    """Return a function that converts values for Arrow; None: Arrow takes them as they are."""
    if isinstance(type_, str):
        return _PREPARE.get(kind_of(type_))
    if type_["type"] == "array":
        return functools.partial(_array, preparation(type_["elementType"]))
    if type_["type"] == "map":
        return functools.partial(
            _map, preparation(type_["keyType"]), preparation(type_["valueType"])
        )
    fields = fields_of(type_)
    return functools.partial(_struct, fields, [preparation(field.type) for field in fields])


def _instant(value: Any) -> int:
    if isinstance(value, Timestamp):
        return int(value.micros)
    if getattr(value, "tzinfo", None) is None:
        raise TypeError(
            f"{value!r} is not an instant: give an apache_beam.utils.timestamp.Timestamp, or a "
            "datetime with a time zone; a TIMESTAMP_NTZ column takes a datetime without one"
        )
    return int((value - _EPOCH) // datetime.timedelta(microseconds=1))


def _local(value: Any) -> Any:
    if getattr(value, "tzinfo", None) is not None:
        raise TypeError(f"{value!r} has a time zone; TIMESTAMP_NTZ has none, TIMESTAMP has")
    return value


def _day(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        raise TypeError(f"{value!r} has a time of day, but the column is a DATE: give value.date()")
    return value


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


_PREPARE: dict[str, Prepare] = {
    "timestamp": _instant,
    "timestamp_ntz": _local,
    "date": _day,
    "float": _number,
    "double": _number,
}
"""Conversions of atomic types whose values Arrow refuses, or would change without an error."""


_READY = {"date": datetime.date, "float": float, "double": float}


def _ready(type_: SparkType) -> frozenset[type]:
    """Return the Python types of values that need no conversion, which most columns have."""
    ready = _READY.get(kind_of(type_))
    return frozenset() if ready is None else frozenset({ready, type(None)})


def _prepared(prepare: Prepare | None, value: Any) -> Any:
    return value if prepare is None or value is None else prepare(value)


def _array(prepare: Prepare | None, value: Any) -> list[Any]:
    return [_prepared(prepare, item) for item in value]


def _map(key: Prepare | None, item: Prepare | None, value: Any) -> list[tuple[Any, Any]]:
    return [(_prepared(key, one), _prepared(item, other)) for one, other in value.items()]


def _struct(fields: list[Column], prepare: list[Prepare | None], value: Any) -> dict[str, Any]:
    get = value.__getitem__ if isinstance(value, Mapping) else functools.partial(getattr, value)
    return {
        field.name: _prepared(prepare_field, get(field.name))
        for field, prepare_field in zip(fields, prepare, strict=True)
    }
