"""``WriteToSpark``: writes rows to a table or to files, by one Spark write."""

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core.table_steps import MODES, WRITE_TABLE, TableWrite
from beam_spark_runner.core.table_types import columns_of
from beam_spark_runner.transforms.dead_letters import (
    DEAD_LETTERS,
    WRITTEN,
    SinkOutputs,
    dead_letter,
    in_global_window,
    late_dead_letter,
)
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
    """The result of ``WriteToSpark``.

    Attributes:
        target: The table, path, or data source.
        written: Whether rows were written. False: the target existed, and the mode is ``ignore``.
        rows: The number of rows that were written.
        files: The files that were written, if the format reports them.
    """

    target: str
    written: bool
    rows: int
    files: Sequence[str]


class WriteToSpark(beam.PTransform):  # type: ignore[misc]
    """Writes rows by one Spark write, after the rest of the pipeline has succeeded.

    The result is a collection of one ``SparkWriteResult``. Steps downstream of it run after the
    write. All others run before it, so that nothing is written if one of them fails.

    Args:
        table: The name of a table in a catalog.
        path: The folder of files, or of a table.
        format: The name of a data source. Default: ``parquet`` for a path, Spark's default for a
            table. Without table and path: a data source that needs neither.
        mode: ``append``, ``overwrite``, ``error`` or ``ignore``: what happens if the target exists.
            A source of the same pipeline can be overwritten only if its format keeps versions, as
            Delta and Iceberg do.
        partition_by: The names of columns to partition by.
        options: The options of the data source.
        schema: The schema of the rows, as in ``ReadFromSpark``; needed for dicts, and for elements
            whose type Beam does not know.
        keys: The names of columns, for streaming pipelines that write a table of a database: a row
            replaces the one that has the same values there.

    Raises:
        ValueError: The arguments contradict each other, or a column has no counterpart in Spark.

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
        keys: Sequence[str] | str | None = None,
    ) -> None:
        super().__init__()
        self._rejects = False
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
            keys=names_given(keys),
        )

    def with_exception_handling(self) -> "WriteToSpark":
        """Return a transform that emits rows that do not fit the schema, in place of failing.

        Its result is a pair of collections, as that of ``ParDo.with_exception_handling``: what the
        transform emits otherwise, and dead letters: pairs of row and failure, in the global
        window. What Spark or the target refuses is an error all the same.

        Example:
            written, bad = rows | WriteToSpark(table="totals").with_exception_handling()
        """
        rejecting = copy.copy(self)
        rejecting._rejects = True
        return rejecting

    def default_label(self) -> str:
        """Return a label with the name of the target."""
        return f"WriteToSpark({self._write.table or self._write.path or self._write.format})"

    @override
    def expand(self, rows: beam.PCollection) -> Any:
        schema = self._schema or schema_of_hint(rows.element_type)
        if schema is None:
            raise ValueError(
                f"WriteToSpark needs rows with a schema, but these are {rows.element_type}: give "
                "schema='id BIGINT, …', or with_output_types to the previous step"
            )
        names = [column.name for column in columns_of(schema)]
        for argument in ("partition_by", "keys"):
            missing = [name for name in getattr(self._write, argument) if name not in names]
            if missing:
                raise ValueError(
                    f"WriteToSpark: {argument} names {', '.join(missing)}, but the columns are "
                    f"{', '.join(names)}"
                )
        write = replace(self._write, schema=schema, has_given_schema=self._schema is not None)
        rows |= "Window" >> beam.WindowInto(GlobalWindows())
        bad = None
        if self._rejects:
            encode = beam.ParDo(EncodeBatchesOrReject(schema))
            outputs = rows | "Encode" >> encode.with_outputs(DEAD_LETTERS, main=WRITTEN)
            coded, bad = outputs[WRITTEN], outputs[DEAD_LETTERS]
            coded.element_type = bytes
        else:
            coded = rows | "Encode" >> beam.ParDo(EncodeBatches(schema)).with_output_types(bytes)
        good = (
            coded
            | "Write" >> _WriteTable(write)
            | "Result" >> beam.Map(_result_of).with_output_types(SparkWriteResult)
        )
        return good if bad is None else SinkOutputs(good, bad)


def _result_of(coded: bytes) -> SparkWriteResult:
    return SparkWriteResult(**json.loads(coded))


@beam.PTransform.register_urn(WRITE_TABLE, bytes)
class _WriteTable(beam.PTransform):  # type: ignore[misc]
    """The step that this runner executes; other runners execute its expansion, an error."""

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
    """Encodes rows as Arrow batches of some megabytes.

    Args:
        schema: The schema of the table in Spark's JSON.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def setup(self) -> None:
        """Make the encoder."""
        self._encoder = BatchEncoder(self._schema)
        self._most = 100  # rows of a batch, until the size of rows is known

    def start_bundle(self) -> None:
        """Begin a bundle without rows."""
        self._rows: list[Any] = []

    def process(self, row: Any) -> Iterable[Any]:
        """Add a row; return the batch if it is large enough."""
        self._rows.append(row)
        return [self._take()] if len(self._rows) >= self._most else []

    def finish_bundle(self) -> Iterator[Any]:
        """Emit the rows that are left."""
        if self._rows:
            yield WindowedValue(self._take(), MIN_TIMESTAMP, [GlobalWindow()])

    def _take(self) -> bytes:
        coded = self._encoder.encode(self._rows)
        size = len(coded) // len(self._rows) + 1
        # Later rows may be larger: a batch has at most twice as many rows as the last one.
        self._most = max(1, min(_BATCH_ROWS, _BATCH_BYTES // size, 2 * len(self._rows)))
        self._rows = []
        return coded


class EncodeBatchesOrReject(EncodeBatches):
    """Does so, and emits rows that do not fit the schema as dead letters."""

    @override
    def process(self, row: Any) -> Iterator[Any]:
        """Add a row; emit the rows so far if they are enough for a batch."""
        self._rows.append(row)
        if len(self._rows) >= self._most:
            coded, refused = self._fitting()
            yield from coded
            yield from (dead_letter(row, error) for row, error in refused)

    @override
    def finish_bundle(self) -> Iterator[Any]:
        """Emit the rows that are left."""
        coded, refused = self._fitting()
        yield from map(in_global_window, coded)
        yield from (late_dead_letter(in_global_window(row), error) for row, error in refused)

    def _fitting(self) -> tuple[list[bytes], list[tuple[Any, Exception]]]:
        """Return the batches of the rows that fit, and the other rows."""
        coded: list[bytes] = []
        fitting: list[Any] = []
        refused: list[tuple[Any, Exception]] = []
        pending, self._rows = [self._rows] if self._rows else [], []
        while pending:
            rows = self._rows = pending.pop()
            try:
                coded.append(self._take())
                fitting += rows
            except Exception as error:  # of the user's classes, too
                self._rows = []
                if len(rows) == 1:
                    refused.append((rows[0], error))
                else:
                    middle = len(rows) // 2
                    pending += [rows[middle:], rows[:middle]]
        return self._in_one_batch(fitting, coded), refused

    def _in_one_batch(self, rows: list[Any], coded: list[bytes]) -> list[bytes]:
        """Encode rows together that were encoded in parts, since others were among them."""
        if len(coded) > 1:
            self._rows = rows
            try:
                return [self._take()]
            except Exception:  # rows of several classes may fit only apart
                self._rows = []
        return coded
