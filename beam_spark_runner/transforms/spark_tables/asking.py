"""The arguments that ``ReadFromSpark`` and ``WriteToSpark`` share, and their error elsewhere."""

from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam

from beam_spark_runner.core.table_types import columns_of, unusable_columns
from beam_spark_runner.transforms.spark_tables.beam_types import schema_of_hint
from beam_spark_runner.transforms.spark_tables.table_ddl import schema_of_ddl


def schema_given(schema: Any) -> str:
    """Return a schema argument in Spark's JSON.

    Args:
        schema: Columns as in SQL's DDL; or a NamedTuple, a dataclass, or another type of which
            Beam knows the schema; or a dict of names and Python types.

    Raises:
        ValueError: It is none of these, or a column has no counterpart in Beam or Spark.
    """
    if isinstance(schema, str):
        schema_json: str | None = schema_of_ddl(schema)
    elif isinstance(schema, Mapping):
        from apache_beam.typehints.row_type import RowTypeConstraint

        schema_json = schema_of_hint(RowTypeConstraint.from_fields(list(schema.items())))
    else:
        schema_json = schema_of_hint(schema)
    if schema_json is None:
        raise ValueError(f"{schema!r} is no schema: give a text such as 'id BIGINT, name STRING'")
    refuse_unusable(schema_json, "the schema")
    return schema_json


def refuse_unusable(schema: str, what: str) -> None:
    """Raise a ValueError that names all columns without a counterpart in Beam, if there are any."""
    problems = unusable_columns(schema)
    if problems:
        raise ValueError(f"{what} has columns that Beam cannot have:\n  " + "\n  ".join(problems))
    columns_of(schema)


def options_given(options: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the options of a data source as strings, without those that are None."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (options or {}).items()
        if value is not None
    }


def format_given(format_: str | None) -> str:
    """Return the name of a data source in lower case, unless it is the name of a class."""
    name = format_ or ""
    return name if "." in name else name.lower()


def names_given(names: Any) -> tuple[str, ...]:
    """Return names as a tuple; a single one may be given as a string."""
    return (names,) if isinstance(names, str) else tuple(names or ())


class RefuseElsewhere(beam.DoFn):  # type: ignore[misc]
    """Raises an error: it replaces the runner's own step if another runner runs the pipeline."""

    def __init__(self, step: str, instead: str) -> None:
        self._step = step
        self._instead = instead

    def process(self, element: Any, *others: Any) -> Iterator[bytes]:
        raise NotImplementedError(
            f"{self._step} needs SparkPortableRunner; on another runner use {self._instead}"
        )
