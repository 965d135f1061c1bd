"""``WriteToSpark``: rows into a table or into files, by one Spark write."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.table_types import columns_of
from beam_spark_runner.core.tables import MODES, WRITE_TABLE, TableWrite
from beam_spark_runner.transforms.spark_tables.asking import (
    RefuseElsewhere,
    format_given,
    names_given,
    options_given,
    schema_given,
)
from beam_spark_runner.transforms.spark_tables.beam_types import schema_of_hint
from beam_spark_runner.transforms.spark_tables.to_arrow import BatchEncoder

_INSTEAD = "the connector of beam.io for the same target, such as WriteToParquet or WriteToJdbc"
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 10_000


class SparkWriteResult(NamedTuple):
    """What ``WriteToSpark`` has done.

    Attributes:
        target: the table, the path, or the data source.
        written: False: the target existed, and the mode is ``ignore``.
        rows: that were written.
        files: that were written, if the format reports them.
    """

    target: str
    written: bool
    rows: int
    files: Sequence[str]


class WriteToSpark(beam.PTransform):  # type: ignore[misc]
    """Writes rows by one Spark write, after all else has succeeded.

    The result is a collection of one ``SparkWriteResult``. Steps that read it run after the write;
    all others before it, so that a pipeline that fails there has written nothing.

    Args:
        table: name in a catalog.
        path: a folder for files, or for a table.
        format: name of a data source; for a path ``parquet``, if it is left out; for a table
            Spark's default. Without table and path: a data source that needs neither.
        mode: ``append``, ``overwrite``, ``error`` or ``ignore``: what happens if the target exists.
            What the pipeline reads with ``ReadFromSpark`` may be overwritten only if its format
            keeps versions, as Delta and Iceberg do.
        partition_by: names of columns.
        options: of the data source.
        schema: of the rows, as in ``ReadFromSpark``; needed for dicts and for elements whose type
            Beam does not know.

    Raises:
        ValueError: the arguments contradict each other, or a column has no counterpart in Spark.

    Example:
        rows | WriteToSpark(table="totals", mode="append")
    """

    def __init__(
        self,
        *,
        table: str | None = None,
        path: str | None = None,
        format: str | None = None,
        mode: str = "error",
        partition_by: Sequence[str] | str | None = None,
        options: Mapping[str, Any] | None = None,
        schema: Any = None,
    ) -> None:
        super().__init__()
        if (table and path) or not (table or path or format):
            raise ValueError("WriteToSpark takes a table or a path, or a format with options")
        if mode not in MODES:
            raise ValueError(f"WriteToSpark: mode {mode!r} is none of {', '.join(MODES)}")
        self._schema = None if schema is None else schema_given(schema)
        self._write = TableWrite(
            table=table or "",
            path=path or "",
            format=format_given(format) or ("parquet" if path else ""),
            mode=mode,
            partition_by=names_given(partition_by),
            options=options_given(options),
        )

    def default_label(self) -> str:
        """Name what is written."""
        return f"WriteToSpark({self._write.table or self._write.path or self._write.format})"

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        """See ``beam.PTransform``."""
        schema = self._schema or schema_of_hint(rows.element_type)
        if schema is None:
            raise ValueError(
                f"WriteToSpark needs rows with a schema, but these are {rows.element_type}: give "
                "schema='id BIGINT, …', or with_output_types to the step before"
            )
        names = [each.name for each in columns_of(schema)]
        missing = [name for name in self._write.partition_by if name not in names]
        if missing:
            raise ValueError(
                f"WriteToSpark: partition_by names {', '.join(missing)}, but the columns are "
                f"{', '.join(names)}"
            )
        write = replace(self._write, schema=schema, has_given_schema=self._schema is not None)
        return (
            rows
            | "Window" >> beam.WindowInto(GlobalWindows())
            | "Encode" >> beam.ParDo(EncodeBatches(schema)).with_output_types(bytes)
            | "Write" >> _WriteTable(write)
            | "Result" >> beam.Map(_result_of).with_output_types(SparkWriteResult)
        )


def _result_of(coded: bytes) -> SparkWriteResult:
    return SparkWriteResult(**json.loads(coded))


@beam.PTransform.register_urn(WRITE_TABLE, bytes)
class _WriteTable(beam.PTransform):  # type: ignore[misc]
    """The runner's own step. Its parts run on other runners only."""

    def __init__(self, write: TableWrite) -> None:
        super().__init__()
        self._write = write

    def expand(self, coded: beam.PCollection) -> beam.PCollection:
        refuse = RefuseElsewhere(f"WriteToSpark ({self._write})", _INSTEAD)
        step = beam.ParDo(refuse, beam.pvalue.AsIter(coded)).with_output_types(bytes)
        return coded.pipeline | beam.Impulse() | step

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        return WRITE_TABLE, self._write.to_payload()

    @staticmethod
    def from_runner_api_parameter(proto: Any, payload: bytes, context: Any) -> "_WriteTable":
        return _WriteTable(TableWrite.from_payload(payload))


class EncodeBatches(beam.DoFn):  # type: ignore[misc]
    """Makes Arrow batches of some megabytes of rows.

    Args:
        schema: Spark's JSON of the table.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def setup(self) -> None:
        """Find out how columns are encoded."""
        self._encoder = BatchEncoder(self._schema)
        self._most = 100  # rows of a batch, until their size is known

    def start_bundle(self) -> None:
        """Begin with no rows."""
        self._rows: list[Any] = []

    def process(self, row: Any) -> list[bytes]:
        """Take a row; return a batch if it is large enough."""
        self._rows.append(row)
        return [self._take()] if len(self._rows) >= self._most else []

    def finish_bundle(self) -> Iterator[WindowedValue]:
        """Give the rows that are left."""
        if self._rows:
            yield WindowedValue(self._take(), MIN_TIMESTAMP, [GlobalWindow()])

    def _take(self) -> bytes:
        coded = self._encoder.encode(self._rows)
        size = len(coded) // len(self._rows) + 1
        # Rows grow, too: a batch has at most twice as many as the one whose size is known.
        self._most = max(1, min(_BATCH_ROWS, _BATCH_BYTES // size, 2 * len(self._rows)))
        self._rows = []
        return coded
