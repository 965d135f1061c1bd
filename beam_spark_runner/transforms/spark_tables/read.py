"""``ReadFromSpark``: reads the rows of a table, a query, files or a DataFrame."""

import itertools
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import pyarrow as pa
from typing_extensions import override

from beam_spark_runner.core.table_steps import FRAMES, READ_TABLE, TableRead
from beam_spark_runner.core.table_types import columns_of
from beam_spark_runner.transforms.spark_tables.asking import (
    RefuseElsewhere,
    format_given,
    names_given,
    options_given,
    refuse_unusable,
    schema_given,
)
from beam_spark_runner.transforms.spark_tables.beam_types import row_type_of
from beam_spark_runner.transforms.spark_tables.from_arrow import batches_in, rows_of
from beam_spark_runner.transforms.spark_tables.nulls import null_of_required

_INSTEAD = "the connector of beam.io for the same data, such as ReadFromParquet or ReadFromJdbc"


class ReadFromSpark(beam.PTransform):  # type: ignore[misc]
    """Reads a table, query, files or DataFrame with Spark's connectors, partitions and pushdown.

    Exactly one of ``table``, ``query``, ``path`` and ``dataframe`` is given; or ``format`` with
    ``options`` alone, for data sources without a path, such as ``jdbc``.

    The elements are ``beam.Row``s with the schema of the table, which the runner looks up when the
    transform is applied. If the program has no Spark, as with a job server, give ``schema``;
    otherwise Beam does not know the type of the rows.

    Args:
        table: The name of a table in a catalog.
        query: A SELECT statement.
        path: The path of files, or of a table in a folder.
        format: The name of a data source. Spark's default for a path is ``parquet``.
        options: The options of the data source.
        columns: The columns to read: names, or SQL expressions with aliases. Default: all.
        where: A SQL condition on the rows, which is pushed down to sources that support this.
        dataframe: A DataFrame of the program's own Spark session, classic or Connect.
        schema: The schema of the rows: DDL such as ``"id BIGINT, price DECIMAL(10,2)"``, a
            NamedTuple, a dataclass, or a dict of names and Python types. It is an error if the
            table has another one. Files of CSV and JSON are parsed with this schema.
        batches: Whether DoFns whose ``process_batch`` takes a ``pyarrow.RecordBatch`` get Spark's
            batches. Other DoFns get rows.

    Raises:
        ValueError: The arguments contradict each other, or a column has no counterpart in Beam.
        TableError: Spark cannot read the source.

    Example:
        p | ReadFromSpark(table="sales", where="day >= DATE'2026-01-01'")
    """

    def __init__(
        self,
        *,
        table: str | None = None,
        query: str | None = None,
        path: str | None = None,
        format: str | None = None,
        options: Mapping[str, Any] | None = None,
        columns: Sequence[str] | str | None = None,
        where: str | None = None,
        dataframe: Any = None,
        schema: Any = None,
        batches: bool = False,
    ) -> None:
        super().__init__()
        sources = {"table": table, "query": query, "path": path, "dataframe": dataframe}
        names = [name for name, value in sources.items() if value is not None]
        if len(names) > 1 or not (names or format):
            raise ValueError(
                "ReadFromSpark takes one of table, query, path and dataframe, or a format with "
                f"options; it got {' and '.join(names) or 'none of them'}"
            )
        if (query or dataframe is not None) and (format or options):
            raise ValueError(f"ReadFromSpark: {names[0]} takes neither format nor options")
        self._dataframe = dataframe
        self._batches = batches
        self._schema = None if schema is None else schema_given(schema)
        self._read = TableRead(
            table=table or "",
            query=query or "",
            path=path or "",
            format=format_given(format),
            options=options_given(options),
            columns=names_given(columns),
            where=where or "",
            frame="" if dataframe is None else uuid.uuid4().hex,
        )
        if dataframe is not None:
            FRAMES[self._read.frame] = dataframe
            weakref.finalize(self, FRAMES.pop, self._read.frame, None)

    def default_label(self) -> str:
        """Return a label with the name of the source."""
        read = self._read
        kind = "query" if read.query else "dataframe" if read.frame else read.format
        return f"ReadFromSpark({read.table or read.path or kind})"

    @override
    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        read = replace(self._read, schema=self._schema or "")
        schema = self._schema or _looked_up(begin.pipeline, read)
        if schema is not None:
            refuse_unusable(schema, str(read))
            read = replace(read, schema=schema)
        elif self._batches:
            raise ValueError(
                "ReadFromSpark(batches=True) needs the schema, which cannot be looked up here: "
                "give schema='id BIGINT, …'"
            )
        coded = begin | "Read" >> _ReadTable(read)
        required = self._schema or ""
        decode: Any = DecodeRows(required)
        if self._batches and schema:
            decode = DecodeBatches(schema, required)
        row_type = Any if schema is None else row_type_of(schema)
        return coded | "Decode" >> beam.ParDo(decode).with_output_types(row_type)


def _looked_up(pipeline: beam.Pipeline, read: TableRead) -> str | None:
    """Ask the pipeline's runner for the schema; None: it does not look up schemas."""
    look_up = getattr(pipeline.runner, "schema_of_table", None)
    schema: str | None = None if look_up is None else look_up(read, pipeline.options)
    return schema


@beam.PTransform.register_urn(READ_TABLE, bytes)
class _ReadTable(beam.PTransform):  # type: ignore[misc]
    """The step that this runner executes; other runners execute its expansion, an error."""

    def __init__(self, read: TableRead) -> None:
        super().__init__()
        self._read = read

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        refuse = RefuseElsewhere(f"ReadFromSpark ({self._read})", _INSTEAD)
        return begin | beam.Impulse() | beam.ParDo(refuse).with_output_types(bytes)

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return READ_TABLE, self._read.to_payload()

    @staticmethod
    def from_runner_api_parameter(proto: Any, payload: bytes, context: Any) -> "_ReadTable":
        return _ReadTable(TableRead.from_payload(payload))


class DecodeRows(beam.DoFn):  # type: ignore[misc]
    """Converts Arrow streams to rows.

    Args:
        required: See ``_checked``.
    """

    makes_new_results = True  # see ``harness.beam.step_loops.NewResultsLoop``

    def __init__(self, required: str) -> None:
        self._required = required

    def process(self, coded: bytes) -> Iterator[beam.Row]:
        """Return the rows of an Arrow stream."""
        # An iterator rather than a list, since the runner passes rows on in chunks.
        return itertools.chain.from_iterable(map(rows_of, _checked(coded, self._required)))


class DecodeBatches(beam.DoFn):  # type: ignore[misc]
    """Emits the batches of Arrow streams without converting them.

    Args:
        schema: The schema of the rows in Spark's JSON.
        required: See ``_checked``.
    """

    def __init__(self, schema: str, required: str) -> None:
        self._schema = schema
        self._required = required

    @beam.DoFn.yields_batches  # type: ignore[untyped-decorator]
    def process(self, coded: bytes) -> Iterator[pa.RecordBatch]:
        """Return the batches of an Arrow stream."""
        return _checked(coded, self._required)

    def infer_output_type(self, input_type: Any) -> Any:
        """Return the element type: rows with the schema."""
        return row_type_of(self._schema)


def _checked(coded: bytes, required: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow stream.

    Args:
        coded: The stream.
        required: The ``schema`` argument in Spark's JSON; empty: none. Its non-nullable columns are
            checked here, since Spark treats all columns of files as nullable.

    Raises:
        ValueError: A non-nullable column of that schema has a null.
    """
    batches = batches_in(coded)
    if not required:
        yield from batches
        return
    columns = columns_of(required)
    for batch in batches:
        if (path := null_of_required(columns, batch.columns)) is not None:
            raise ValueError(
                f"column {path}: a row of the table has a null, but the schema given to "
                "ReadFromSpark does not allow it: make the column nullable, or exclude such rows "
                "by where="
            )
        yield batch
