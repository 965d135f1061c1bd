import json
from typing import Any

import pytest

from beam_spark_runner.core.table_types import (
    Column,
    columns_of,
    fits,
    names_python_class,
    schema_of,
    side_by_side,
    struct_of,
    text_of_type,
    unusable_columns,
)
from beam_spark_runner.transforms.spark_tables.table_ddl import schema_of_ddl

ALL = (
    "b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f FLOAT, d DOUBLE, "
    "dec DECIMAL(10,2), s STRING, raw BINARY, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, "
    "t TIME(6), iv INTERVAL DAY TO SECOND, arr ARRAY<ARRAY<INT>>, m MAP<STRING, BIGINT>, "
    "st STRUCT<x: INT, `y z`: ARRAY<STRING>>"
)


def test_a_schema_in_sql_is_read_and_written() -> None:
    columns = columns_of(schema_of_ddl(ALL))
    assert ", ".join(f"{name} {text_of_type(type_)}" for name, type_, _ in columns) == (
        ALL.replace("`y z`", "y z")
    )


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("a int", "integer"),
        ("a: LONG", "long"),
        ("a DECIMAL", "decimal(10,0)"),
        ("a NUMERIC(5)", "decimal(5,0)"),
        ("a VARCHAR(10)", "string"),
        ("a INTERVAL DAY", "interval day"),
    ],
)
def test_synonyms(text: str, type_: str) -> None:
    assert columns_of(schema_of_ddl(text)) == [Column("a", type_, True)]


def test_not_null() -> None:
    found = columns_of(schema_of_ddl("a INT NOT NULL, b STRING"))
    assert [each.is_nullable for each in found] == [False, True]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "a name was expected, not the end"),
        ("a", "a name was expected, not the end"),
        ("a INT b", ", was expected, not b"),
        ("a INT,", "a name was expected, not the end"),
        ("a ARRAY<INT", "> was expected, not the end"),
        ("a BLOB", "BLOB is no type"),
        ("a INT(3)", "INT is no type"),
        ("a INT; b INT", "'; b INT' cannot be read"),
    ],
)
def test_what_is_no_schema(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="the schema") as raised:
        schema_of_ddl(text)
    assert problem in str(raised.value)


def test_columns_that_beam_cannot_have_are_named() -> None:
    struct = {
        "type": "struct",
        "fields": [
            {"name": "v", "type": "variant", "nullable": True, "metadata": {}},
            {"name": "ok", "type": "long", "nullable": True, "metadata": {}},
        ],
    }
    schema = schema_of(
        [
            Column("ok", "decimal(38,18)", True),
            Column("month", "interval year to month", True),
            Column("count(1)", "long", False),
            Column("nested", {"type": "array", "elementType": struct, "containsNull": True}, True),
            Column("OK", "void", True),
            Column(
                "m",
                {"type": "map", "keyType": struct, "valueType": "long", "valueContainsNull": True},
                True,
            ),
        ]
    )
    assert unusable_columns(schema) == [
        "column month: Beam has no type for INTERVAL YEAR TO MONTH; cast it",
        "column count(1): Beam's fields are Python identifiers, no keywords; rename it",
        "column nested[].v: Beam has no type for VARIANT; cast it",
        "column OK: Beam has no type for VOID; cast it",
        "column m: keys of maps must be of an atomic type; cast it",
        "column m[key].v: Beam has no type for VARIANT; cast it",
        "column ok: there are several of this name; give each its own",
    ]


def test_schemas_side_by_side() -> None:
    shown = side_by_side(
        "the rows", schema_of_ddl("a INT, b STRING"), "the target", schema_of_ddl("a INT, c DATE")
    )
    assert shown.splitlines() == [
        "   column  the rows   the target",
        "   a       INT        INT",
        "≠  b       STRING     (missing)",
        "≠  c       (missing)  DATE",
    ]


@pytest.mark.parametrize(
    ("given", "wanted", "expected"),
    [
        ("INT", "BIGINT", True),
        ("BIGINT", "INT", False),
        ("FLOAT", "DOUBLE", True),
        ("DOUBLE", "FLOAT", False),
        ("DECIMAL(38,18)", "DECIMAL(10,2)", True),
        ("STRING", "BINARY", False),
        ("TIMESTAMP", "TIMESTAMP_NTZ", False),
        ("ARRAY<INT>", "ARRAY<BIGINT>", True),
        ("ARRAY<STRING>", "ARRAY<BIGINT>", False),
        ("MAP<STRING, INT>", "MAP<STRING, BIGINT>", True),
        ("STRUCT<x: INT>", "STRUCT<x: BIGINT>", True),
        ("STRUCT<x: INT>", "STRUCT<y: INT>", False),
    ],
)
def test_which_values_fit_into_which_column(given: str, wanted: str, expected: bool) -> None:
    (one,), (other,) = (columns_of(schema_of_ddl(f"a {each}")) for each in (given, wanted))
    assert fits(one.type, other.type) is expected


def test_the_json_is_spark_s() -> None:
    assert json.loads(schema_of_ddl("a ARRAY<INT> NOT NULL")) == {
        "type": "struct",
        "fields": [
            {
                "name": "a",
                "type": {"type": "array", "elementType": "integer", "containsNull": True},
                "nullable": False,
                "metadata": {},
            }
        ],
    }


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda type_: type_, id="column"),
        pytest.param(lambda type_: {"type": "array", "elementType": type_}, id="array"),
        pytest.param(
            lambda type_: {"type": "map", "keyType": "long", "valueType": type_}, id="map"
        ),
        pytest.param(
            lambda type_: {"type": "map", "keyType": type_, "valueType": "long"}, id="key of a map"
        ),
        pytest.param(lambda type_: struct_of([Column("inner", type_, True)]), id="struct"),
    ],
)
def test_classes_of_python_are_found_at_any_depth(wrap: Any) -> None:
    of_python = {"type": "udt", "pyClass": "some.module.Type", "sqlType": "long"}
    assert names_python_class(struct_of([Column("column", wrap(of_python), True)]))
    assert not names_python_class(struct_of([Column("column", wrap("long"), True)]))
