"""What ``ReadFromSpark`` and ``WriteToSpark`` refuse when a pipeline is built, without Spark."""

import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

from beam_spark_runner.core.table_steps import TableWrite
from beam_spark_runner.transforms import ReadFromSpark, WriteToSpark


class Odd(NamedTuple):
    id: int
    at: datetime.datetime


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (
            lambda: ReadFromSpark(),
            "takes one of table, query, path and dataframe, or a format with options; it got none",
        ),
        (lambda: ReadFromSpark(table="t", path="/x"), "it got table and path"),
        (
            lambda: ReadFromSpark(query="SELECT 1", options={"a": 1}),
            "query takes neither format nor options",
        ),
        (
            lambda: ReadFromSpark(dataframe=object(), format="csv"),
            "dataframe takes neither format nor options",
        ),
        (lambda: ReadFromSpark(table="t", schema="id BLOB"), "BLOB is no type"),
        (
            lambda: ReadFromSpark(table="t", schema=7),
            "7 is no schema: give a text such as 'id BIGINT, name STRING'",
        ),
        (
            lambda: ReadFromSpark(table="t", schema="`a b` INT, a INT, A INT"),
            r"the schema has columns that Beam cannot have:\n  column a b: .*; rename it\n"
            "  column a: there are several",
        ),
        (lambda: WriteToSpark(), "takes a table or a path, or a format with options"),
        (lambda: WriteToSpark(table="t", path="/x"), "takes a table or a path"),
        (
            lambda: WriteToSpark(table="t", mode="replace"),
            "mode 'replace' is none of append, overwrite, error, ignore",
        ),
        (
            lambda: WriteToSpark(table="t", schema=Odd),
            r"column at: Any, or a Python class without a schema, has no counterpart in Spark; "
            "give WriteToSpark a schema",
        ),
    ],
)
def test_arguments_that_contradict_each_other(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make()


def written(type_: Any, step: beam.PTransform) -> None:
    values = beam.Pipeline() | beam.Create([]).with_output_types(type_)
    _ = values | step


def test_rows_without_a_schema() -> None:
    with pytest.raises(ValueError, match=r"needs rows with a schema, but these are .*: give"):
        written(dict[str, int], WriteToSpark(path="/x"))


@pytest.mark.parametrize("argument", ["partition_by", "keys"])
def test_columns_that_there_are_not(argument: str) -> None:
    step = WriteToSpark(path="/x", schema="id INT", **{argument: ["id", "day"]})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"{argument} names day, but the columns are id"):
        written(Any, step)


def test_keys_are_in_the_payload_only_if_there_are_any() -> None:
    """Else pipelines of earlier versions would be other ones."""
    with_keys = TableWrite(format="jdbc", keys=("id",))
    assert TableWrite.from_payload(with_keys.to_payload()) == with_keys
    without = TableWrite(format="jdbc")
    assert b"keys" not in without.to_payload()
    assert TableWrite.from_payload(without.to_payload()) == without


def test_rows_with_columns_that_spark_cannot_have() -> None:
    with pytest.raises(ValueError, match=r"column at: .* has no counterpart in Spark"):
        written(Odd, WriteToSpark(path="/x"))


def test_batches_of_a_table_that_nobody_can_look_up() -> None:
    with pytest.raises(ValueError, match=r"ReadFromSpark\(batches=True\) needs the schema"):
        _ = beam.Pipeline("FnApiRunner") | ReadFromSpark(table="t", batches=True)
