"""Writes tables: checks before anything runs, then one Spark write of accepted rows."""

import contextlib
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.table_types import Column, columns_of, fits, schema_of, side_by_side
from beam_spark_runner.core.tables import TableWrite
from beam_spark_runner.spark.driver.table_reasons import (
    is_about_connection,
    is_about_nothing_there,
    lacks_connector,
    reason_for,
    says_it_exists,
)
from beam_spark_runner.spark.rows import schema
from beam_spark_runner.spark.rows.table_rows import writing_function
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.transforms.spark_tables.to_arrow import arrow_type

_FILES = ("parquet", "orc", "csv", "json", "text", "avro", "xml")
_WITHOUT_TYPES = ("csv", "json", "text", "xml")
_AT_ONCE = (*_FILES, "delta", "iceberg", "hudi", "")
"""Formats of which a failed write leaves nothing that readers see, so that it may run again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWrite:
    """A write that has passed its checks.

    Attributes:
        write: what is to be done.
        step: name of the step.
        schema: Spark's JSON of the rows, as the target has them.
        is_there: the target existed before the pipeline ran.
        session: of the pipeline.
    """

    write: TableWrite
    step: str
    schema: str
    is_there: bool
    session: SessionHandle

    @property
    def may_run_again(self) -> bool:
        """Whether a failed write leaves nothing."""
        return self.write.format in _AT_ONCE

    def reason_for(self, error: BaseException) -> str:
        """Say why Spark could not write."""
        write = self.write
        return reason_for(error, write.format, write.options, str(self.session.spark.version))

    def run(self, rows: DataFrame | None, dest: DestinationId, *, is_again: bool) -> bytes:
        """Write, and return JSON of a ``SparkWriteResult``.

        Args:
            rows: materialised, and accepted. None: there are none.
            dest: of those that are to be written.
            is_again: the same write has failed before.

        Raises:
            Exception: of Spark's.
        """
        write = self.write
        is_skipped = write.mode == "ignore" and self.is_there
        files: list[str] = []
        count = 0
        if not is_skipped:
            before = set(self._files()) if self.is_there and write.mode == "append" else set()
            if rows is not None:
                count = _count(rows, dest)
            self._save(self._frame(rows, dest), is_again)
            self._refresh()
            files = [each for each in self._files() if each not in before]
        target = write.table or write.path or write.options.get("dbtable") or write.format
        return json.dumps(
            {"target": target, "written": not is_skipped, "rows": count, "files": files}
        ).encode()

    def _frame(self, rows: DataFrame | None, dest: DestinationId) -> DataFrame:
        columns = columns_of(self.schema)
        spark_schema = StructType.fromJson(json.loads(self.schema))
        if rows is None:
            empty: DataFrame = self.session.spark.createDataFrame([], spark_schema)
            return empty
        wanted = pa.schema([(each.name, arrow_type(each.type)) for each in columns])
        return rows.mapInArrow(writing_function(int(dest), wanted), spark_schema)

    def _save(self, frame: DataFrame, is_again: bool) -> None:
        write, mode = self.write, self.write.mode
        if is_again and mode in ("error", "ignore"):
            # There was no target. What is there now is what the failed write has left, such as an
            # empty folder: Spark would take that for an error, or for nothing more to do.
            mode = "overwrite"
        writer = frame.write.mode(mode).options(**write.options)
        if write.format:
            writer = writer.format(write.format)
        if write.partition_by:
            writer = writer.partitionBy(*write.partition_by)
        if write.table:
            writer.saveAsTable(write.table)
        elif write.path:
            writer.save(write.path)
        else:
            writer.save()

    def _refresh(self) -> None:
        """Have the user's session forget which files it knew."""
        with contextlib.suppress(Exception):  # not every catalog and path has something to forget
            if self.write.table:
                self.session.catalog.catalog.refreshTable(self.write.table)
            elif self.write.path:
                self.session.catalog.catalog.refreshByPath(self.write.path)

    def _files(self) -> list[str]:
        """Return the files of the target; none, if the format does not tell."""
        write, reader = self.write, self.session.catalog.read
        with contextlib.suppress(Exception):  # the rows are written, whatever is wrong here
            if write.table:
                return sorted(self.session.catalog.table(write.table).inputFiles())
            if write.path and write.format in _FILES:
                return sorted(reader.format("binaryFile").load(write.path).inputFiles())
            if write.path:
                return sorted(reader.format(write.format).load(write.path).inputFiles())
        return []


def _count(rows: DataFrame, dest: DestinationId) -> int:
    """Count the rows in batches; of one that travels in pieces, the first piece says it."""
    is_first = (
        f"(dest & {schema.PIECE}) = 0 or hex(substring(value, {schema.PIECE_POSITION + 1}, 4)) = "
        "'00000000'"
    )
    (found,) = (
        rows.filter(f"(dest & {schema.DEST_MASK}) = {int(dest)} and ({is_first})")
        .selectExpr("coalesce(sum(`order`), cast(0 as bigint)) as count")
        .collect()
    )
    return int(found[0])


def open_write(write: TableWrite, session: SessionHandle, step: str) -> OpenWrite:
    """Check a write.

    Args:
        write: what is to be done.
        session: of the pipeline.
        step: name of the step.

    Raises:
        TableError: it would fail.
    """
    existing = _existing(write, session, step)
    is_there = existing is not None
    if is_there and write.mode == "error":
        raise TableError(
            f"{write} exists already, and the mode is error: choose append, overwrite or ignore",
            step,
        )
    target = write.schema
    if existing and write.mode == "append":
        target = _as_in(existing, write, step)
    nullable = [Column(name, type_, True) for name, type_, _ in columns_of(target)]
    return OpenWrite(
        write=write, step=step, schema=schema_of(nullable), is_there=is_there, session=session
    )


def _as_in(existing: str, write: TableWrite, step: str) -> str:
    """Return the schema of the target, if the rows fit into it."""
    given = {each.name: each.type for each in columns_of(write.schema)}
    target = columns_of(existing)
    if given.keys() != {each.name for each in target} or not all(
        fits(given[each.name], each.type) for each in target
    ):
        shown = side_by_side("the rows", write.schema, "the target", existing)
        raise TableError(f"{write} has another schema than the rows:\n{shown}", step)
    return existing


def _existing(write: TableWrite, session: SessionHandle, step: str) -> str | None:
    """Return Spark's JSON of what the target has; empty, if it has no types; None: it is not there.

    Raises:
        TableError: there is no connector for it.
    """
    catalog: Any = session.catalog
    try:
        if write.table and not catalog.catalog.tableExists(write.table):
            if write.format:
                _check_connector(write, catalog)
            return None
        reader = catalog.read.options(**write.options)
        if write.table:
            frame = catalog.table(write.table)
        elif write.path and (
            write.format in _WITHOUT_TYPES or (write.format in _FILES and write.mode != "append")
        ):
            # Files of another format may be overwritten, too: only that they are there matters.
            if write.format not in _WITHOUT_TYPES:
                _check_connector(write, catalog)
            reader.format("text").load(write.path).schema  # noqa: B018  # Connect looks only then
            return ""
        elif write.path:
            frame = reader.format(write.format).load(write.path)
        else:
            frame = reader.format(write.format).load()
        found: str = frame.schema.json()
        return found
    except Exception as error:
        if says_it_exists(error):
            return ""
        # Each database has words of its own for a table that it does not have.
        may_be_missing = is_about_nothing_there(error) or not (write.path or write.table)
        if lacks_connector(error) or is_about_connection(error) or not may_be_missing:
            reason = reason_for(error, write.format, write.options, str(session.spark.version))
            raise TableError(reason, step) from error
        return None


def _check_connector(write: TableWrite, catalog: Any) -> None:
    try:
        catalog.read.format(write.format).load("/this/path/does/not/exist").schema  # noqa: B018
    except Exception as error:
        if lacks_connector(error):
            raise
