"""Schemas of Spark tables, in Spark's own JSON.

A type is a name, such as ``"long"``, ``"decimal(10,2)"`` or ``"interval day to second"``, or an
object for an array, a map or a struct. Source: Spark ``DataType.json``.
"""

import json
import keyword
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

SparkType = str | dict[str, Any]

SQL_NAMES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "binary": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_ntz": "TIMESTAMP_NTZ",
}
"""SQL names of atomic types without parameters that Beam has, too, by Spark's names."""

_PARAMETERISED = re.compile(
    r"decimal\(\d+,\s*-?\d+\)|time(\(\d\))?"
    r"|interval (day|hour|minute|second)( to (hour|minute|second))?"
)


class Column(NamedTuple):
    """A column of a table, or a field of a struct."""

    name: str
    type: SparkType
    is_nullable: bool


def columns_of(schema: str) -> list[Column]:
    """Return the columns of a table.

    Args:
        schema: The schema, as Spark's JSON of a struct.
    """
    return fields_of(json.loads(schema))


def fields_of(struct: dict[str, Any]) -> list[Column]:
    """Return the fields of a struct."""
    return [Column(field["name"], field["type"], field["nullable"]) for field in struct["fields"]]


def struct_of(columns: list[Column]) -> dict[str, Any]:
    """Return a struct of these fields."""
    fields = [
        {"name": name, "type": type_, "nullable": nullable, "metadata": {}}
        for name, type_, nullable in columns
    ]
    return {"type": "struct", "fields": fields}


def schema_of(columns: list[Column]) -> str:
    """Return Spark's JSON of a table with these columns."""
    return json.dumps(struct_of(columns))


def kind_of(type_: SparkType) -> str:
    """Return the name of a type without its parameters, such as ``array`` or ``decimal``."""
    name = type_["type"] if isinstance(type_, dict) else type_
    return re.split(r"[( ]", str(name))[0]


def text_of_type(type_: SparkType) -> str:
    """Return the SQL text of a type.

    Example:
        {"type": "array", "elementType": "long", …}   ==>   ARRAY<BIGINT>
    """
    if isinstance(type_, str):
        return SQL_NAMES.get(type_, type_.upper())
    match type_["type"]:
        case "array":
            return f"ARRAY<{text_of_type(type_['elementType'])}>"
        case "map":
            return f"MAP<{text_of_type(type_['keyType'])}, {text_of_type(type_['valueType'])}>"
        case "struct":
            parts = (f"{field.name}: {text_of_type(field.type)}" for field in fields_of(type_))
            return f"STRUCT<{', '.join(parts)}>"
        case other:
            return str(other).upper()


def unusable_columns(schema: str) -> list[str]:
    """Describe the columns that Beam cannot represent, and what to do about each."""
    problems = list(_unusable_fields(json.loads(schema), ""))
    names = [column.name.casefold() for column in columns_of(schema)]
    for name in dict.fromkeys(name for name in names if names.count(name) > 1):
        problems.append(f"column {name}: there are several of this name; give each its own")
    return problems


def names_python_class(type_: SparkType) -> bool:
    """Whether PySpark would import a module, or unpickle a class, to represent a type.

    Source: ``pyspark.sql.types.UserDefinedType.fromJson``.
    """
    if isinstance(type_, str):
        return False
    match type_["type"]:
        case "array":
            return names_python_class(type_["elementType"])
        case "map":
            return any(map(names_python_class, (type_["keyType"], type_["valueType"])))
        case "struct":
            return any(names_python_class(field.type) for field in fields_of(type_))
        case _:
            return True


def _unusable_fields(struct: dict[str, Any], path: str) -> Iterator[str]:
    for name, type_, _ in fields_of(struct):
        where = f"{path}{name}"
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
            yield f"column {where}: Beam's fields are Python identifiers, no keywords; rename it"
        yield from _unusable(type_, where)


def _unusable(type_: SparkType, path: str) -> Iterator[str]:
    if isinstance(type_, str):
        if type_ not in SQL_NAMES and _PARAMETERISED.fullmatch(type_) is None:
            yield f"column {path}: Beam has no type for {text_of_type(type_)}; cast it"
    elif type_["type"] == "array":
        yield from _unusable(type_["elementType"], f"{path}[]")
    elif type_["type"] == "map":
        if isinstance(type_["keyType"], dict):
            yield f"column {path}: keys of maps must be of an atomic type; cast it"
        yield from _unusable(type_["keyType"], f"{path}[key]")
        yield from _unusable(type_["valueType"], f"{path}[value]")
    elif type_["type"] == "struct":
        yield from _unusable_fields(type_, f"{path}.")
    else:
        yield f"column {path}: Beam has no type for {text_of_type(type_)}; cast it"


def side_by_side(left: str, left_schema: str, right: str, right_schema: str) -> str:
    """Render two schemas side by side, one column per line; differences are marked.

    Args:
        left: The title of the first schema.
        left_schema: The first schema, Spark's JSON.
        right: The title of the second schema.
        right_schema: The second schema, Spark's JSON.
    """
    first = {column.name: text_of_type(column.type) for column in columns_of(left_schema)}
    second = {column.name: text_of_type(column.type) for column in columns_of(right_schema)}
    lines = [("", "column", left, right)]
    for name in dict.fromkeys((*first, *second)):
        mine, other = first.get(name, "(missing)"), second.get(name, "(missing)")
        lines.append(("" if mine == other else "≠", name, mine, other))
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


_WHOLE = ("byte", "short", "integer", "long")


def fits(type_: SparkType, column_type: SparkType) -> bool:
    """Whether values of one type may be stored in a column of another.

    The column's type must be able to represent each value. Decimals are checked only when they are
    written, where a loss of digits is an error.
    """
    first, second = kind_of(type_), kind_of(column_type)
    if first in _WHOLE and second in _WHOLE:
        return _WHOLE.index(first) <= _WHOLE.index(second)
    if isinstance(type_, dict) and isinstance(column_type, dict) and first == second:
        if first == "array":
            return fits(type_["elementType"], column_type["elementType"])
        if first == "map":
            return fits(type_["keyType"], column_type["keyType"]) and fits(
                type_["valueType"], column_type["valueType"]
            )
        mine, other = fields_of(type_), fields_of(column_type)
        return [field.name for field in mine] == [field.name for field in other] and all(
            fits(one.type, another.type) for one, another in zip(mine, other, strict=True)
        )
    return first == second or (first, second) == ("float", "double")
