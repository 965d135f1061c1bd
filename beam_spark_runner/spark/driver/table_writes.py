"""Writes tables: checks before anything runs, then one Spark write of accepted rows."""

import contextlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.table_steps import WITHOUT_TYPES, TableWrite
from beam_spark_runner.core.table_types import Column, columns_of, fits, schema_of, side_by_side
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.tables import Begun
from beam_spark_runner.engine.rows.table_rows import OtherAttemptError
from beam_spark_runner.recovery.begun_writes import (
    DELTA,
    BegunWrite,
    Outcome,
    UnknownTableWriteError,
    advice_for,
    outcome,
)
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.driver.rows_to_write import RowsToWrite, rows_to_write
from beam_spark_runner.spark.driver.table_reasons import (
    is_missing_connector,
    is_missing_schema,
    is_missing_table,
    is_refused_connection,
    reason_for,
)
from beam_spark_runner.spark.driver.table_schemas import check_types, struct_type
from beam_spark_runner.spark.driver.table_states import FILE_FORMATS, WriteTarget
from beam_spark_runner.spark.session.conf import get_conf
from beam_spark_runner.spark.session.handle import SessionHandle

_WITH_VERSIONS = ("delta", "iceberg", "hudi")
_FILES_AT_ONCE = (*FILE_FORMATS, "hive")
"""Formats whose files readers see when the whole write has ended, if ``_COMMITTER`` is 1."""
_COMMITTER = "mapreduce.fileoutputcommitter.algorithm.version"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWrite:
    """A write that has passed its checks; see ``TableToWrite``.

    Attributes:
        write: the target and mode of the write.
        step: the name of the step.
        schema: the schema of the rows as the target has them, as Spark's JSON.
        is_there: the target existed before the pipeline ran.
        session: the session of the pipeline.
    """

    write: TableWrite
    step: str
    schema: str
    is_there: bool
    session: SessionHandle

    @property
    def _target(self) -> WriteTarget:
        return WriteTarget(self.write, self.session)

    def may_run_again(self) -> bool:
        """Whether a failed write has left no rows. Queries the catalog of a table."""
        if self._target.is_missing_table():
            return True
        provider = self._target.provider()
        if provider in _WITH_VERSIONS:
            return True
        is_at_once = self.write.mode != "append" or not self._has_tasks_that_commit()
        return provider in _FILES_AT_ONCE and is_at_once

    def _has_tasks_that_commit(self) -> bool:
        """Whether others see files once their task has ended, before the whole write has."""
        options = {key.lower(): value for key, value in self.write.options.items()}
        of_session = get_conf(self.session.spark, f"spark.hadoop.{_COMMITTER}", "1")
        return options.get(_COMMITTER, of_session) == "2"

    def keeps_versions(self) -> bool:
        """Whether an overwrite leaves the old rows in place until it has committed."""
        return self._target.provider() in _WITH_VERSIONS

    def reason_for(self, error: BaseException) -> str:
        """Say why Spark could not write."""
        write = self.write
        return reason_for(error, write.format, write.options, str(self.session.spark.version))

    @property
    def is_skipped(self) -> bool:
        """See ``TableToWrite``."""
        return self.write.mode == "ignore" and self.is_there

    def skip(self) -> bytes:
        """See ``TableToWrite``."""
        return self._result(0, [])

    def continued(self, begun: BegunWrite) -> "OpenWrite":
        """See ``TableToWrite``."""
        return replace(self, schema=begun.schema, is_there=begun.before.exists is not False)

    def outcome(self, begun: BegunWrite) -> Outcome:
        """See ``TableToWrite``."""
        if begun.session:
            self.session.interrupt(begun.session)  # a server may still run what its client began
        found = self._target.look_for(begun)
        result = outcome(self.write.mode, begun, found)
        if result == Outcome.UNKNOWN:
            raise UnknownTableWriteError(
                self.step,
                str(self.write),
                begun.rows,
                begun.fence,
                advice_for(begun.before, found.now),
            )
        return result

    def written(self, begun: BegunWrite) -> bytes:
        """See ``TableToWrite``."""
        return self._result(begun.rows, self._new_files(begun))

    def run(
        self,
        rows: OutputRows | None,
        dest: DestinationId,
        begin: Callable[[Callable[[int], BegunWrite]], Begun],
    ) -> bytes:
        """See ``TableToWrite``."""
        checked = None if rows is None else rows_to_write(rows, dest)
        count = 0 if checked is None else checked.count
        return self._write_rows(checked, begin(lambda start: self._beginning(start, count)))

    def _beginning(self, start: int, rows: int) -> BegunWrite:
        return BegunWrite(
            fence=start,
            mark=uuid.uuid4().hex,
            schema=self.schema,
            rows=rows,
            before=self._target.state(),
            session=str(self.session.spark.session_id) if self.session.is_connect else "",
        )

    def _write_rows(self, rows: RowsToWrite | None, begun: Begun) -> bytes:
        previous_files = self._files_before(begun.write)
        try:
            with self.session.program_catalogs():
                self._save(self._empty() if rows is None else rows.frame(self.schema), begun)
        except Exception as error:
            is_of_others = rows is not None and OtherAttemptError.is_in(error)
            if rows is None or not is_of_others or not self.may_run_again():
                raise
            raise rows.ambiguous() from error
        self._target.refresh()
        files = [file for file in self.files() if file not in previous_files]
        return self._result(0 if rows is None else rows.count, files)

    def _new_files(self, begun: BegunWrite) -> list[str]:
        previous_files = self._files_before(begun)
        return [file for file in self.files() if file not in previous_files]

    def _files_before(self, begun: BegunWrite | None) -> set[str]:
        if self.write.mode != "append":
            return set()
        if begun is not None and begun.before.kind == DELTA:  # which may have the write already
            return set(self._target.files_of_version(begun.before.version))
        return set(self.files())

    def _result(self, rows: int, files: list[str]) -> bytes:
        write = self.write
        target = write.table or write.path or write.options.get("dbtable") or write.format
        return json.dumps(
            {"target": target, "written": not self.is_skipped, "rows": rows, "files": files}
        ).encode()

    def _empty(self) -> DataFrame:
        schema = struct_type(self.schema)
        empty: DataFrame = self.session.spark.createDataFrame([], schema)
        return empty

    def _save(self, frame: DataFrame, begun: Begun) -> None:
        mode, marks = self.write.mode, dict[str, str]()
        if begun.write is not None:
            marks.update(self._target.marks(begun.write))
            self._target.set_apart(begun.start)
            if begun.is_again:
                self._target.remove_remains(begun.write)
        if begun.is_again and mode in ("error", "ignore"):
            # There was no target. What is there now is what the failed write has left, such as an
            # empty folder: Spark would treat that as an error, or as nothing more to do.
            mode = "overwrite"
        self._save_as(frame, mode, marks)

    def create(self) -> None:
        """Create the target of an append, unless there is one, without rows."""
        self.save(self._empty(), "append", {})

    def save(self, frame: DataFrame, mode: str, marks: Mapping[str, str]) -> None:
        """Write rows in one Spark write.

        Args:
            frame: the rows.
            mode: one of ``MODES``.
            marks: options by which the format will know the write again.
        """
        with self.session.program_catalogs():
            self._save_as(frame, mode, marks)
        self._target.refresh()

    def _save_as(self, frame: DataFrame, mode: str, marks: Mapping[str, str]) -> None:
        write = self.write
        writer = frame.write.mode(mode).options(**{**write.options, **marks})
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

    def files(self) -> list[str]:
        """Return the files of the target; none, if the format does not list them."""
        return self._target.files()


def open_write(write: TableWrite, session: SessionHandle, step: str) -> OpenWrite:
    """Check a write.

    Args:
        write: the target and mode of the write.
        session: the session of the pipeline.
        step: the name of the step.

    Raises:
        TableError: the write would fail.
    """
    check_types(write.schema, step)
    with session.program_catalogs():
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
    elif existing and write.mode == "overwrite" and not write.has_given_schema:
        with contextlib.suppress(TableError):  # the rows have other columns, which replace these
            target = _as_in(existing, write, step)
    nullable = [Column(name, type_, True) for name, type_, _ in columns_of(target)]
    return OpenWrite(
        write=write, step=step, schema=schema_of(nullable), is_there=is_there, session=session
    )


def begun_write(write: TableWrite, session: SessionHandle, step: str) -> OpenWrite:
    """Return a write that an earlier start has begun; see ``OpenWrite.continued``.

    What was checked then is not true any more: its target may exist.

    Args:
        write: the target and mode of the write.
        session: the session of the pipeline.
        step: the name of the step.
    """
    return OpenWrite(write=write, step=step, schema=write.schema, is_there=False, session=session)


def _as_in(existing: str, write: TableWrite, step: str) -> str:
    """Return the schema of the target, if the rows fit into it.

    Values by which files are partitioned are in the names of folders, from which Spark infers
    their types: those of the rows count instead.
    """
    types_of_rows = {column.name: column.type for column in columns_of(write.schema)}
    in_folders = () if write.table else write.partition_by
    target = [
        column._replace(type=types_of_rows[column.name]) if column.name in in_folders else column
        for column in columns_of(existing)
    ]
    if types_of_rows.keys() != {column.name for column in target} or not all(
        fits(types_of_rows[column.name], column.type) for column in target
    ):
        comparison = side_by_side("the rows", write.schema, "the target", existing)
        raise TableError(f"{write} has another schema than the rows:\n{comparison}", step)
    return schema_of(target)


def _existing(write: TableWrite, session: SessionHandle, step: str) -> str | None:
    """Return the target's schema, as Spark's JSON; empty: it has no types; None: no target exists.

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
            write.format in WITHOUT_TYPES
            or (write.format in FILE_FORMATS and write.mode != "append")
        ):
            # Files of another format may be overwritten, too: only that they are there matters.
            if write.format not in WITHOUT_TYPES:
                _check_connector(write, catalog)
            reader.format("text").load(write.path).schema  # noqa: B018  # Connect looks only then
            return ""
        elif write.path:
            frame = reader.format(write.format).load(write.path)
        else:
            frame = reader.format(write.format).load()
        return pyspark_internals.schema_json(frame)
    except Exception as error:
        if is_missing_schema(error):
            return ""
        # Each database has its own words for a table that it does not have.
        may_be_missing = is_missing_table(error) or not (write.path or write.table)
        if is_missing_connector(error) or is_refused_connection(error) or not may_be_missing:
            reason = reason_for(error, write.format, write.options, str(session.spark.version))
            raise TableError(reason, step) from error
        return None


def _check_connector(write: TableWrite, catalog: Any) -> None:
    try:
        catalog.read.format(write.format).load("/this/path/does/not/exist").schema  # noqa: B018
    except Exception as error:
        if is_missing_connector(error):
            raise
