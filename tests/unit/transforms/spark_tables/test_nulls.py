"""Nulls where a schema has none."""

from typing import Any

import pyarrow as pa
import pytest

from beam_spark_runner.core.table_types import Column, SparkType
from beam_spark_runner.transforms.spark_tables.nulls import null_of_required


def array_of(element: SparkType, *, has_nulls: bool) -> SparkType:
    return {"type": "array", "elementType": element, "containsNull": has_nulls}


def map_of(value: SparkType, *, has_nulls: bool) -> SparkType:
    return {"type": "map", "keyType": "string", "valueType": value, "valueContainsNull": has_nulls}


STRUCT: SparkType = {
    "type": "struct",
    "fields": [
        {"name": "x", "type": "long", "nullable": False, "metadata": {}},
        {"name": "y", "type": "long", "nullable": True, "metadata": {}},
    ],
}
LONGS = pa.list_(pa.int64())
BY_NAME = pa.map_(pa.string(), pa.int64())
POINT = pa.struct([("x", pa.int64()), ("y", pa.int64())])


@pytest.mark.parametrize(
    ("type_", "arrow", "values", "path"),
    [
        ("long", pa.int64(), [1, None], "c"),
        ("long", pa.int64(), [1, 2], None),
        (array_of("long", has_nulls=False), LONGS, [[1], [], [2, None]], "c[]"),
        (array_of("long", has_nulls=True), LONGS, [[1], [], [2, None]], None),
        (map_of("long", has_nulls=False), BY_NAME, [[("a", 1)], [("b", None)]], "c[value]"),
        (map_of("long", has_nulls=True), BY_NAME, [[("a", 1)], [("b", None)]], None),
        (STRUCT, POINT, [{"x": 1, "y": None}, {"x": None, "y": 2}], "c.x"),
        (STRUCT, POINT, [{"x": 1, "y": None}], None),
        (
            array_of(STRUCT, has_nulls=True),
            pa.list_(POINT),
            [[None, {"x": 1, "y": 1}], [{"x": None, "y": 1}]],
            "c[].x",
        ),
        (array_of(STRUCT, has_nulls=True), pa.list_(POINT), [[None], []], None),
    ],
)
def test_the_first_one_is_named(
    type_: SparkType, arrow: pa.DataType, values: list[Any], path: str | None
) -> None:
    column = Column("c", type_, False)
    assert null_of_required([column], [pa.array(values, arrow)]) == path


@pytest.mark.parametrize(
    ("type_", "arrow", "null"),
    [
        (array_of("long", has_nulls=False), LONGS, [None]),
        (map_of("long", has_nulls=False), BY_NAME, [("a", None)]),
        (STRUCT, POINT, {"x": None, "y": 1}),
    ],
)
def test_only_what_a_slice_shows_counts(type_: SparkType, arrow: pa.DataType, null: Any) -> None:
    column = Column("c", type_, True)
    array = pa.array([null, None, None, null], arrow)
    assert null_of_required([column], [array.slice(1, 2)]) is None
    assert null_of_required([column], [array.slice(1)]) is not None
    assert null_of_required([column], [array.slice(1, 0)]) is None
