"""Rows, Arrow batches, and rows again: every type of docs/spark_tables.md."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, Optional

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam import coders
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.table_types import columns_of, text_of_type
from beam_spark_runner.transforms.spark_tables.beam_types import row_type_of, schema_of_hint
from beam_spark_runner.transforms.spark_tables.from_arrow import batches_in, rows_of, values_of
from beam_spark_runner.transforms.spark_tables.table_ddl import schema_of_ddl
from beam_spark_runner.transforms.spark_tables.to_arrow import BatchEncoder
from beam_spark_runner.transforms.spark_tables.write import EncodeBatches

UTC = datetime.timezone.utc
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False, None],
    "TINYINT": [-128, 127, None],
    "SMALLINT": [-(1 << 15), (1 << 15) - 1, None],
    "INT": [-(1 << 31), (1 << 31) - 1, None],
    "BIGINT": [-(1 << 63), (1 << 63) - 1, None],
    "FLOAT": [1.5, float("inf"), None],
    "DOUBLE": [0.1, float("-inf"), None],
    "DECIMAL(10,2)": [Decimal("-12345678.90"), Decimal("0.01"), None],
    "DECIMAL(38,18)": [Decimal("1.000000000000000001"), None],
    "STRING": ["", "süß \U0001f600", None],
    "BINARY": [b"", b"\x00\xff", None],
    "DATE": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None],
    "TIMESTAMP": [Timestamp(micros=-1), Timestamp(micros=1 << 50), None],
    "TIMESTAMP_NTZ": [datetime.datetime(1582, 10, 4, 1, 2, 3, 4), None],
    "TIME(6)": [datetime.time(23, 59, 59, 999_999), None],
    "INTERVAL DAY TO SECOND": [datetime.timedelta(days=-1, microseconds=1), None],
    "ARRAY<INT>": [[1, None], [], None],
    "ARRAY<ARRAY<STRING>>": [[["a"], None, []], None],
    "MAP<STRING, TIMESTAMP>": [{"a": Timestamp(1), "b": None}, {}, None],
    "STRUCT<x: INT, y: STRUCT<z: TIMESTAMP>>": [
        beam.Row(x=1, y=beam.Row(z=Timestamp(2))),
        beam.Row(x=None, y=None),
        None,
    ],
    "ARRAY<STRUCT<at: TIMESTAMP>>": [[beam.Row(at=Timestamp(3)), None], None],
}


@pytest.mark.parametrize("type_", VALUES)
def test_values_come_back(type_: str) -> None:
    schema = schema_of_ddl(f"c {type_}, n INT")
    rows = [beam.Row(c=value, n=number) for number, value in enumerate(VALUES[type_])]
    (batch,) = batches_in(BatchEncoder(schema).encode(rows))
    assert rows_of(batch) == rows
    assert rows_of(batch.slice(1)) == rows[1:]
    # What has no null takes another way.
    some = [row for row in rows if row.c is not None]
    (batch,) = batches_in(BatchEncoder(schema).encode(some))
    assert rows_of(batch) == some


@pytest.mark.parametrize("type_", VALUES)
def test_rows_go_through_the_coder_of_their_type(type_: str) -> None:
    coder = coders.registry.get_coder(row_type_of(schema_of_ddl(f"c {type_}")))
    for value in VALUES[type_]:
        row = coder.decode(coder.encode(beam.Row(c=value)))
        if not isinstance(value, beam.Row) and "STRUCT" not in type_:
            assert row.c == value


class Point(NamedTuple):
    x: int
    y: Optional[float]  # noqa: UP045  (Beam has no ``|``)


@dataclass
class Line:
    name: str
    points: Sequence[Point]


def test_schemas_of_python_classes() -> None:
    found = schema_of_hint(Line)
    assert found is not None
    assert [(each.name, text_of_type(each.type)) for each in columns_of(found)] == [
        ("name", "STRING"),
        ("points", "ARRAY<STRUCT<x: BIGINT, y: DOUBLE>>"),
    ]
    assert schema_of_hint(int) is None
    assert schema_of_hint(Any) is None


def test_rows_of_any_class() -> None:
    found = schema_of_hint(Line)
    assert found is not None
    for line in (
        Line("a", [Point(1, None)]),
        {"name": "a", "points": [{"x": 1, "y": None}]},
        beam.Row(name="a", points=[beam.Row(x=1, y=None)]),
    ):
        (batch,) = batches_in(BatchEncoder(found).encode([line]))
        assert rows_of(batch) == [beam.Row(name="a", points=[beam.Row(x=1, y=None)])]


class Odd(NamedTuple):
    ok: int
    odd: datetime.datetime


def test_types_that_cannot_go_out_are_named() -> None:
    with pytest.raises(ValueError, match=r"column odd: Any, or a Python class .* no counterpart"):
        schema_of_hint(Odd)


@pytest.mark.parametrize(
    ("schema", "row", "problem"),
    [
        ("c INT", {"c": 1 << 31}, "column c: a value does not fit into INT"),
        ("c INT", {"c": "1"}, "column c: a value does not fit into INT"),
        ("c STRING", {"c": 1}, "column c: a value does not fit into STRING"),
        ("c DECIMAL(4,2)", {"c": Decimal("100.00")}, "column c: a value does not fit into DECIMAL"),
        ("c DECIMAL(4,2)", {"c": Decimal("0.001")}, "column c: a value does not fit into DECIMAL"),
        ("c TIMESTAMP", {"c": datetime.datetime(2026, 1, 1)}, "column c: .* not an instant"),
        ("c DOUBLE", {"c": "12.5"}, "column c: a value does not fit into DOUBLE: '12.5' is not"),
        ("c FLOAT", {"c": b"1"}, "column c: a value does not fit into FLOAT"),
        (
            "c TIMESTAMP_NTZ",
            {"c": datetime.datetime(2026, 1, 1, tzinfo=UTC)},
            "column c: .* has a time zone",
        ),
        ("c DATE", {"c": datetime.datetime(2026, 1, 1, 2)}, "column c: .* has a time"),
        ("c INT NOT NULL", {"c": None}, "column c: it may not be null"),
        ("c INT", {"d": 1}, "column c: a row does not have it"),
        ("c INT", Point(1, 2.0), "column c: a row does not have it"),
    ],
)
def test_values_that_do_not_fit_are_named(schema: str, row: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        BatchEncoder(schema_of_ddl(schema)).encode([row])


def test_nulls_in_nested_values_are_named() -> None:
    schema = schema_of_hint(Line)
    assert schema is not None
    with pytest.raises(ValueError, match=r"column points\[\]\.x: it may not be null"):
        BatchEncoder(schema).encode([{"name": "a", "points": [{"x": None, "y": 1.0}]}])


def test_a_datetime_with_a_zone_is_an_instant() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    row = {"at": datetime.datetime(1970, 1, 1, 2, 0, 1, tzinfo=zone)}
    (batch,) = batches_in(BatchEncoder(schema_of_ddl("at TIMESTAMP")).encode([row]))
    assert rows_of(batch) == [beam.Row(at=Timestamp(1))]


def test_large_whole_numbers_next_to_nulls_stay_exact() -> None:
    assert values_of(pa.array([(1 << 62) + 1, None])) == [(1 << 62) + 1, None]


def test_batches_grow_by_what_is_known_of_rows() -> None:
    """Rows of a megabyte may follow small ones."""
    encode = EncodeBatches(schema_of_ddl("c BINARY"))
    encode.setup()
    encode.start_bundle()
    rows = [beam.Row(c=b"x")] * 300 + [beam.Row(c=bytes(1 << 14))] * 2000
    coded = [each for row in rows for each in encode.process(row)]
    coded += [each.value for each in encode.finish_bundle()]
    counts = [batch.num_rows for each in coded for batch in batches_in(each)]
    assert counts[:2] == [100, 200]
    assert max(counts) == 400
    assert sum(counts) == len(rows)
