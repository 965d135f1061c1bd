"""``ReadFromSpark``: the rows of a table, a query, files or a DataFrame."""

import itertools
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beam_spark_runner.core.table_types import columns_of
from beam_spark_runner.core.tables import FRAMES, READ_TABLE, TableRead
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
    """Reads what Spark can read, directly: with Spark's connectors, partitions and pushdown.

    Exactly one of ``table``, ``query``, ``path`` and ``dataframe`` is given; or ``format`` with
    ``options`` alone, for data sources without a path, such as ``jdbc``.

    The elements are ``beam.Row``s. Their schema is that of the table, which the runner looks up
    when the transform is applied. Without Spark in the program, as with a job server, give
    ``schema``; else the elements are rows all the same, but of a type that Beam does not know.

    Args:
        table: name in a catalog.
        query: a SELECT statement.
        path: files, or a table in a folder.
        format: name of a data source. Spark's default for a path is ``parquet``.
        options: of the data source.
        columns: names, or SQL expressions with aliases. Only these are read.
        where: a SQL condition. Sources that can read only the rows that meet it do so.
        dataframe: of the program's own Spark session, classic or Connect.
        schema: of the rows: a text such as ``"id BIGINT, price DECIMAL(10,2)"``, a NamedTuple, a
            dataclass, or a dict of names and Python types. Another schema of the table is an
            error, which shows both. Files of CSV and JSON are read by it.
        batches: the elements reach DoFns whose ``process_batch`` takes ``pyarrow.RecordBatch`` as
            Spark has made them. Others get rows.

    Raises:
        ValueError: the arguments contradict each other, or a column has no counterpart in Beam.
        TableError: Spark cannot read it.

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
        named = [name for name, value in sources.items() if value is not None]
        if len(named) > 1 or not (named or format):
            raise ValueError(
                "ReadFromSpark takes one of table, query, path and dataframe, or a format with "
                f"options; it got {' and '.join(named) or 'none of them'}"
            )
        if (query or dataframe is not None) and (format or options):
            raise ValueError(f"ReadFromSpark: {named[0]} takes neither format nor options")
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
        """Name what is read."""
        read = self._read
        kind = "query" if read.query else "dataframe" if read.frame else read.format
        return f"ReadFromSpark({read.table or read.path or kind})"

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """See ``beam.PTransform``."""
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
    """Ask the pipeline's runner for the schema; None: it does not know of tables."""
    look_up = getattr(pipeline.runner, "schema_of_table", None)
    found: str | None = None if look_up is None else look_up(read, pipeline.options)
    return found


@beam.PTransform.register_urn(READ_TABLE, bytes)
class _ReadTable(beam.PTransform):  # type: ignore[misc]
    """The runner's own step. Its parts run on other runners only."""

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
    """Makes rows of Arrow batches.

    Args:
        required: see ``_checked``.
    """

    makes_new_results = True  # see ``harness.beam.steps.Making``

    def __init__(self, required: str) -> None:
        self._required = required

    def process(self, coded: bytes) -> Iterator[beam.Row]:
        """Return the rows of an Arrow stream."""
        # An iterator, and no list: its rows are handed on a chunk at a time.
        return itertools.chain.from_iterable(map(rows_of, _checked(coded, self._required)))


class DecodeBatches(beam.DoFn):  # type: ignore[misc]
    """Hands Arrow batches on as they are.

    Args:
        schema: Spark's JSON of the rows.
        required: see ``_checked``.
    """

    def __init__(self, schema: str, required: str) -> None:
        self._schema = schema
        self._required = required

    @beam.DoFn.yields_batches  # type: ignore[untyped-decorator]
    def process(self, coded: bytes) -> Iterator[pa.RecordBatch]:
        """Return the batches of an Arrow stream."""
        return _checked(coded, self._required)

    def infer_output_type(self, input_type: Any) -> Any:
        """Say what an element is."""
        return row_type_of(self._schema)


def _checked(coded: bytes, required: str) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an Arrow stream.

    Args:
        coded: the stream.
        required: Spark's JSON of the schema that the user has given; empty: none. Spark takes
            columns of files for nullable, so that a null is seen only when it comes.

    Raises:
        ValueError: there is a null where that schema has none.
    """
    batches = batches_in(coded)
    if not required:
        yield from batches
        return
    columns = columns_of(required)
    for batch in batches:
        if (path := null_of_required(columns, batch.columns)) is not None:
            raise ValueError(
                f"column {path}: a row of the table has a null, but the schema that ReadFromSpark "
                "was given has none there: make it nullable, or leave such rows out by where="
            )
        yield batch
