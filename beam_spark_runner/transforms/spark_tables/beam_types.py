"""Converts between schemas of Spark tables and Beam's element types. See docs/spark_tables.md."""

import datetime
import decimal
import typing
from typing import Any

import numpy as np
from apache_beam.portability.api import schema_pb2
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import typing_to_runner_api
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.table_types import (
    Column,
    SparkType,
    columns_of,
    fields_of,
    kind_of,
    schema_of,
    struct_of,
)

_PYTHON_TYPES: dict[str, Any] = {
    "boolean": bool,
    "byte": np.int16,  # Beam's coder of BYTE does not accept negative numbers
    "short": np.int16,
    "integer": np.int32,
    "long": np.int64,
    "float": np.float32,
    "double": float,
    "decimal": decimal.Decimal,
    "string": str,
    "binary": bytes,
    "date": datetime.date,
    "timestamp": Timestamp,
    # Beam's schemas have no type for these: it pickles their values.
    "timestamp_ntz": datetime.datetime,
    "time": typing.Any,
    "interval": datetime.timedelta,
}


def row_type_of(schema: str) -> Any:
    """Return Beam's element type of the rows of a table.

    Args:
        schema: The schema in Spark's JSON; all columns have a counterpart in Beam.
    """
    return _row_type(columns_of(schema))


def _row_type(columns: list[Column]) -> Any:
    return RowTypeConstraint.from_fields(
        [(name, _hint(type_, is_nullable)) for name, type_, is_nullable in columns]
    )


def _hint(type_: SparkType, is_nullable: bool) -> Any:
    hint: Any
    if isinstance(type_, str):
        hint = _PYTHON_TYPES[kind_of(type_)]
    elif type_["type"] == "array":
        hint = typing.Sequence[_hint(type_["elementType"], type_["containsNull"])]  # type: ignore[misc]
    elif type_["type"] == "map":
        value = _hint(type_["valueType"], type_["valueContainsNull"])
        hint = typing.Mapping[_hint(type_["keyType"], False), value]  # type: ignore[misc]
    else:
        hint = _row_type(fields_of(type_))
    return typing.Optional[hint] if is_nullable else hint  # noqa: UP045  (Beam has no ``|``)


_ATOMIC = {
    schema_pb2.BOOLEAN: "boolean",
    schema_pb2.BYTE: "byte",
    schema_pb2.INT16: "short",
    schema_pb2.INT32: "integer",
    schema_pb2.INT64: "long",
    schema_pb2.FLOAT: "float",
    schema_pb2.DOUBLE: "double",
    schema_pb2.STRING: "string",
    schema_pb2.BYTES: "binary",
}
_LOGICAL = {
    # Spark's own type for Python's decimals.
    "beam:logical_type:decimal:v1": "decimal(38,18)",
    "beam:logical_type:micros_instant:v1": "timestamp",
    "beam:logical_type:millis_instant:v1": "timestamp",
    "beam:logical_type:date:v1": "date",
    "beam:logical_type:javasdk_date:v1": "date",
    "beam:logical_type:fixed_char:v1": "string",
    "beam:logical_type:var_char:v1": "string",
    "beam:logical_type:fixed_bytes:v1": "binary",
    "beam:logical_type:var_bytes:v1": "binary",
}


def schema_of_hint(element_type: Any) -> str | None:
    """Return Spark's JSON of the schema of an element type; None: the type has no schema.

    Args:
        element_type: The element type of a PCollection, a NamedTuple, or a dataclass.

    Raises:
        ValueError: A column has no counterpart in Spark; the text names it.
    """
    row_type = element_type
    if not isinstance(row_type, RowTypeConstraint):
        row_type = RowTypeConstraint.from_user_type(element_type)
    if row_type is None:
        return None
    columns = _columns(typing_to_runner_api(row_type).row_type.schema, "")
    return schema_of(columns)


def _columns(schema: Any, path: str) -> list[Column]:
    return [
        Column(field.name, _spark_type(field.type, f"{path}{field.name}"), field.type.nullable)
        for field in schema.fields
    ]


def _spark_type(type_: Any, path: str) -> SparkType:
    match type_.WhichOneof("type_info"):
        case "atomic_type" if type_.atomic_type in _ATOMIC:
            return _ATOMIC[type_.atomic_type]
        case "array_type" | "iterable_type" as kind:
            element = getattr(type_, kind).element_type
            return {
                "type": "array",
                "elementType": _spark_type(element, f"{path}[]"),
                "containsNull": element.nullable,
            }
        case "map_type":
            map_type = type_.map_type
            return {
                "type": "map",
                "keyType": _spark_type(map_type.key_type, f"{path}[key]"),
                "valueType": _spark_type(map_type.value_type, f"{path}[value]"),
                "valueContainsNull": map_type.value_type.nullable,
            }
        case "row_type":
            return struct_of(_columns(type_.row_type.schema, f"{path}."))
        case "logical_type":
            urn = type_.logical_type.urn
            if urn in _LOGICAL:
                return _LOGICAL[urn]
            if urn == "beam:logical_type:fixed_decimal:v1":
                fields = type_.logical_type.argument.row.values
                precision, scale = (field.atomic_value.int32 for field in fields)
                return f"decimal({precision},{scale})"
            what = "Any, or a Python class without a schema," if "any" in urn else urn
            raise ValueError(
                f"column {path}: {what} has no counterpart in Spark; give WriteToSpark a schema, "
                "such as schema='id BIGINT, at TIMESTAMP_NTZ', or convert the values first"
            )
    raise ValueError(f"column {path}: its type has no counterpart in Spark: {type_}")
