"""Looks at the target of a write: before it begins, and after a driver has died."""

import contextlib
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pyspark.sql import DataFrame

from beam_spark_runner.core.table_steps import TableWrite
from beam_spark_runner.recovery.begun_writes import (
    DELTA,
    FILES,
    ICEBERG,
    BegunWrite,
    Found,
    TargetState,
    has_mark,
)
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.driver.table_reasons import is_missing_table
from beam_spark_runner.spark.session.conf import get_conf
from beam_spark_runner.spark.session.handle import SessionHandle

FILE_FORMATS = ("parquet", "orc", "csv", "json", "text", "avro", "xml")
_KINDS = {**dict.fromkeys((*FILE_FORMATS, "hive"), FILES), DELTA: DELTA, ICEBERG: ICEBERG}
_MARK = "beam-spark-runner.write"
_SESSION_CATALOG = "spark_catalog"
_ATTEMPT = "mapreduce.job.application.attempt.id"


class WriteTarget:
    """The target of a write.

    Args:
        write: the write.
        session: the session of the pipeline.
    """

    def __init__(self, write: TableWrite, session: SessionHandle) -> None:
        self._write, self._session = write, session
        self._catalog: Any = session.catalog

    def is_missing_table(self) -> bool:
        """Whether it is a table that its catalog says it does not have."""
        with contextlib.suppress(Exception), self._session.program_catalogs():
            return self._is_missing()
        return False

    def provider(self) -> str:
        """Return its data source; empty: the catalog does not know it."""
        write = self._write
        if not write.table:
            return write.format
        with contextlib.suppress(Exception), self._session.program_catalogs():
            return self._describe("Provider").lower()
        return ""

    def refresh(self) -> None:
        """Have the sessions of the pipeline and of the program forget which files they knew."""
        for session in (self._catalog, self._session.program):
            with contextlib.suppress(Exception):  # not each catalog and path has any to forget
                if self._write.table:
                    session.catalog.refreshTable(self._write.table)
                elif self._write.path:
                    session.catalog.refreshByPath(self._write.path)

    def files(self) -> list[str]:
        """Return its files; none, if the format does not list them."""
        with contextlib.suppress(Exception):  # the rows are written, whatever is wrong here
            return sorted(self._list_files())
        return []

    def files_of_version(self, version: str) -> list[str]:
        """Return the files of a version of a table of Delta; none, if it has no such version."""
        write, reader = self._write, self._catalog.read
        if not version:
            return []
        with contextlib.suppress(Exception):
            reader = reader.format(DELTA).option("versionAsOf", version)
            frame = reader.table(write.table) if write.table else reader.load(write.path)
            return sorted(frame.inputFiles())
        return []

    def state(self) -> TargetState:
        """Return what is there now."""
        self.refresh()
        with self._session.program_catalogs():
            if self.is_missing_table():
                return self._state_of_missing_table()
            kind = _kind(self.provider())
            if kind == FILES:
                return self._state_of_files()
            if kind == DELTA:
                return TargetState(exists=None, kind=kind, version=self._version())
            if kind == ICEBERG:
                marks, _ = self._snapshots() or ({}, {})
                return TargetState(exists=None, kind=kind, version=next(reversed(marks), ""))
            return TargetState(exists=None, kind=kind)

    def known_kind(self) -> str:
        """Return the kind of the table as it is, or as the write would create it.

        Raises:
            Exception: what Spark raises if the catalog does not answer.
        """
        write = self._write
        if not write.table:
            return _kind(write.format)
        with self._session.program_catalogs():
            if self._is_missing():
                return self._state_of_missing_table().kind
            return _kind(self._describe("Provider").lower())

    def last_snapshot(self) -> str:
        """Return the number of the newest snapshot of a table of Iceberg; empty: it has none.

        Raises:
            Exception: what Spark raises if the catalog or the storage of the table does not answer.
        """
        frame = self._fresh_snapshots()
        if frame is None:
            return ""
        newest = frame.orderBy("committed_at", ascending=False).select("snapshot_id").limit(1)
        return "".join(str(row["snapshot_id"]) for row in newest.collect())

    def find_epoch(self, write: EpochWrite) -> Found:
        """Return what is there of the rows of an epoch, in a table of Iceberg.

        Raises:
            Exception: what Spark raises if the catalog or the storage of the table does not answer.
        """
        frame = self._fresh_snapshots()
        if frame is None:
            return Found(TargetState(exists=False, kind=ICEBERG))
        known = has_mark(*_marks_and_parents(frame), write.begun())
        return Found(TargetState(exists=True, kind=ICEBERG), known)

    def look_for(self, begun: BegunWrite) -> Found:
        """Return what is there of a write that an earlier start has begun."""
        now = self.state()
        if now.exists is False or now.kind != ICEBERG:
            return Found(now)
        with self._session.program_catalogs():
            snapshots = self._snapshots()
        return Found(now, None if snapshots is None else has_mark(*snapshots, begun))

    def marks(self, begun: BegunWrite) -> Mapping[str, str]:
        """Return the options by which the format will know the write again."""
        kind, option_names = begun.before.kind, {key.lower() for key in self._write.options}
        if kind == DELTA and option_names.isdisjoint(("txnappid", "txnversion")):
            return {"txnAppId": f"beam-spark-runner-{begun.mark}", "txnVersion": "1"}
        if kind == ICEBERG:
            return {f"snapshot-property.{_MARK}": begun.mark}
        return {}

    def marks_of_epoch(self, write: EpochWrite) -> Mapping[str, str]:
        """Return the options by which the format will know the rows of an epoch again."""
        if write.kind == DELTA:
            return {"txnAppId": write.writer, "txnVersion": str(write.epoch)}
        return {f"snapshot-property.{_MARK}": write.mark}

    def set_apart(self, start: int) -> None:
        """Have Spark's tasks store files apart from those of earlier starts, until they commit.

        Hadoop's committer would commit what the tasks of a dead driver have left in the target.
        """
        self._session.set_conf(_ATTEMPT, str(start))

    def remove_remains(self, begun: BegunWrite) -> None:
        """Remove what a dead driver has left in the folder in which Spark creates the table.

        Spark creates no table in a folder that is not empty.
        """
        folder = begun.before.folder
        if folder and not self._session.is_connect and self.is_missing_table():
            pyspark_internals.delete_path(self._session.spark, folder)

    def _state_of_missing_table(self) -> TargetState:
        folder = self._folder()
        source = self._write.format
        if folder and not source:
            source = get_conf(self._session.spark, "spark.sql.sources.default", "parquet") or ""
        kind = _kind(source.lower())
        if kind != FILES or (folder and not self._is_empty(folder)):
            folder = ""
        return TargetState(exists=False, kind=kind, digest=_digest(()), folder=folder)

    def _state_of_files(self) -> TargetState:
        try:
            files = self._list_files()
        except Exception as error:
            if is_missing_table(error):
                return TargetState(exists=False, kind=FILES, digest=_digest(()))
            return TargetState(exists=True, kind=FILES)
        return TargetState(
            exists=True,
            kind=FILES,
            files=len(files),
            digest=_digest(files),
            folder=self._own_folder(),
        )

    def _list_files(self) -> list[str]:
        write, reader = self._write, self._catalog.read
        if write.table:
            return list(self._catalog.table(write.table).inputFiles())
        if not write.path:
            return []
        source = "binaryFile" if write.format in FILE_FORMATS else write.format
        return list(reader.format(source).load(write.path).inputFiles())

    def _own_folder(self) -> str:
        """Return the folder of a table that Spark drops, and creates there again."""
        with contextlib.suppress(Exception):
            folder = self._folder() if self._write.mode == "overwrite" else ""
            is_there = folder and _path(self._describe("Location")) == _path(folder)
            if is_there and self._describe("Type") == "MANAGED":
                return folder
        return ""

    def _folder(self) -> str:
        """Return the folder in which Spark's own catalog creates the table."""
        *above, name = re.findall(r"`[^`]+`|[^.]+", self._write.table) or [""]
        catalog = above[0] if above[1:] else self._catalog.catalog.currentCatalog()
        if catalog != _SESSION_CATALOG or above[2:] or not name:
            return ""
        namespace = above[-1] if above else self._catalog.catalog.currentDatabase()
        with contextlib.suppress(Exception):
            rows = self._catalog.sql(f"DESCRIBE NAMESPACE {namespace}").collect()
            (place,) = (row["info_value"] for row in rows if row["info_name"] == "Location")
            return f"{str(place).rstrip('/')}/{name.strip('`').lower()}"
        return ""

    def _is_empty(self, folder: str) -> bool:
        try:
            return not self._catalog.read.format("binaryFile").load(folder).inputFiles()
        except Exception as error:
            return is_missing_table(error)

    def _describe(self, property_name: str) -> str:
        properties = self._catalog.sql(f"DESCRIBE TABLE EXTENDED {self._write.table}")
        rows = properties.filter(f"col_name = '{property_name}'").collect()
        return str(rows[-1]["data_type"]) if rows else ""

    def _version(self) -> str:
        write = self._write
        with contextlib.suppress(Exception):
            name = write.table or f"{DELTA}.`{write.path}`"
            (last,) = self._catalog.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()
            return str(last["version"])
        return ""

    def _is_missing(self) -> bool:
        table = self._write.table
        return bool(table) and not self._catalog.catalog.tableExists(table)

    def _snapshots(self) -> tuple[dict[str, str | None], dict[str, str | None]] | None:
        """Return the marks of Iceberg's snapshots, and their parents. None: they are not known."""
        with contextlib.suppress(Exception):
            return _marks_and_parents(self._snapshot_rows())
        return None

    def _snapshot_rows(self) -> DataFrame:
        write = self._write
        if write.table:
            frame = self._catalog.table(f"{write.table}.snapshots")
        else:
            frame = self._catalog.read.format(ICEBERG).load(f"{write.path}#snapshots")
        return cast(DataFrame, frame)

    def _fresh_snapshots(self) -> DataFrame | None:
        """Return Iceberg's snapshots as they are now, one per row. None: there is no table."""
        self.refresh()
        with self._session.program_catalogs():
            if self._is_missing():
                return None
            if table := self._write.table:
                self._catalog.catalog.refreshTable(table)  # what a cache says may be old
            try:
                return self._snapshot_rows()
            except Exception as error:
                if not self._write.table and is_missing_table(error):
                    return None
                raise


def _marks_and_parents(
    snapshots: DataFrame,
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    rows = snapshots.orderBy("committed_at").collect()
    return (
        {str(row["snapshot_id"]): (row["summary"] or {}).get(_MARK) for row in rows},
        {str(row["snapshot_id"]): row["parent_id"] and str(row["parent_id"]) for row in rows},
    )


def _kind(source: str) -> str:
    return _KINDS.get(source, source)


def _digest(files: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(files)).encode()).hexdigest()


def _path(url: str) -> str:
    return re.sub("^file:/+", "/", url).rstrip("/")
