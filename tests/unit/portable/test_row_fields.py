"""What a row coder is like, whatever id its schema has."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import pytest
from apache_beam.coders import RowCoder
from apache_beam.typehints.schemas import typing_to_runner_api

from beam_spark_runner.portable.row_fields import row_fields


def row(**types: Any) -> Any:
    return NamedTuple("Row", [*types.items()])


def fields(user_type: Any) -> str:
    schema = typing_to_runner_api(user_type).row_type.schema
    return row_fields(RowCoder(schema).to_runner_api_parameter(None)[1].SerializeToString())


def test_equal_rows_are_equal() -> None:
    one = row(x=int, y=str)
    other = row(x=int, y=str)
    assert fields(one) == fields(other) == "x:INT64,y:STRING"


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (Optional[int], "INT64?"),  # noqa: UP045
        (Sequence[str], "array<STRING>"),
        (Mapping[str, float], "map<STRING,DOUBLE>"),
        (bytes, "BYTES"),
        (row(z=bool), "row<z:BOOLEAN>"),
    ],
)
def test_types_of_fields(type_: Any, text: str) -> None:
    assert fields(row(a=type_)) == f"a:{text}"


def test_the_order_of_fields_counts() -> None:
    one = row(x=int, y=int)
    other = row(y=int, x=int)
    assert fields(one) != fields(other)


def test_what_is_no_schema_has_no_fields() -> None:
    assert row_fields(b"\xff") == ""
