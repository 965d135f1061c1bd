"""Materialises outputs that a later segment reads: computed once, without lineage.

Never a bare ``persist``: two readers on two executors would compute a random
stage twice and see different data.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Protocol

from pyspark.sql import DataFrame

from beam_spark_runner.plan.model import Segment
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.session.conf import get_conf
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.versions import SparkVersion
from beam_spark_runner.storage.urls import is_url

_WHOLE_FILE = str(1 << 40)
_ROW_GROUP_BYTES = 16 << 20


def file_settings(version: SparkVersion) -> dict[str, str]:
    """Return the settings for reading ``FilesInSharedStorage``, by version of Spark.

    The pieces of a long value are in one file. One task must read all of it, so no file is
    split; and no two share a task, so that there are as many tasks as wrote. The reader
    decodes a batch of rows at a time, whatever their size; rows hold up to 256 KB on
    Spark 4 and 16 KB on Spark 3 (``Limits.row_limit_bytes``), a batch some 16 MB.
    """
    return {
        "spark.sql.files.maxPartitionBytes": _WHOLE_FILE,
        "spark.sql.files.openCostInBytes": _WHOLE_FILE,
        "spark.sql.parquet.columnarReaderBatchSize": "64"
        if version.limits_batches_by_bytes
        else "1000",
    }


_READING = {  # a cluster's defaults may say otherwise
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",  # the user's folder may have ``[`` or ``*`` in its name
}
_WRITING = {
    "compression": "lz4_raw",
    "maxRecordsPerFile": "0",  # all rows of a task go to one file
    # Writer and reader have a row group in memory. Rows differ in size: the default, to look
    # at the size again after up to 10,000 rows, is gigabytes late.
    "parquet.block.size": str(_ROW_GROUP_BYTES),
    "parquet.page.size": str(1 << 18),
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "16",
    "parquet.enable.dictionary": "false",  # hashes and elements hardly repeat: 15% less CPU
}
_WRITING_TO_STORES = {
    # To rename is to copy in object stores: tasks do it, and the driver does not do it again. Files
    # of two attempts at one task may then remain, which readers notice by their marks.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


class Materialiser(Protocol):
    """Runs frames and stores their rows."""

    def with_users_settings(self, segment: Segment) -> contextlib.AbstractContextManager[None]:
        """Let a segment read Spark tables with the user's settings, unless it reads rows, too."""
        ...

    def materialise(self, frame: DataFrame, name: str) -> DataFrame:
        """Run ``frame`` exactly once, and store its rows.

        It may run in the next Spark job only, which must read all partitions of the result.

        Returns:
            A frame that only reads the rows.
        """
        ...


class CheckpointOnExecutors:
    """Rows stay in memory and on local disk of the executors that made them.

    An executor that is lost takes its rows along; Spark then fails the job that
    reads them, and the segment is run again.
    """

    def with_users_settings(self, segment: Segment) -> contextlib.AbstractContextManager[None]:
        """See ``Materialiser``."""
        return contextlib.nullcontext()

    def materialise(self, frame: DataFrame, name: str) -> DataFrame:
        """See ``Materialiser``."""
        # Spark stores all rows in the first job that reads them: the one that collects reports.
        rows = frame.localCheckpoint(eager=False)
        pyspark_internals.bind_checkpoint(rows, frame.sparkSession)
        return rows


class FilesInSharedStorage:
    """Rows are Parquet files that every executor can read; a lost executor costs nothing.

    Args:
        session: gets ``file_settings``, until it is closed.
        folder: the folder that all executors share, as Spark takes it: a path, or a URL.
    """

    def __init__(self, session: SessionHandle, folder: str) -> None:
        self._session = session
        self._spark = session.spark
        self._folder = folder
        self._writing = _WRITING | (_WRITING_TO_STORES if is_url(folder) else {})
        self._settings = file_settings(session.version)
        self._users_settings = {key: get_conf(session.spark, key) for key in self._settings}
        self._set_conf(self._settings)

    def _set_conf(self, settings: Mapping[str, str | None]) -> None:
        for key, value in settings.items():
            if value is not None:
                self._session.set_conf(key, value)

    @contextlib.contextmanager
    def with_users_settings(self, segment: Segment) -> Iterator[None]:
        """See ``Materialiser``. Rows that are materialised inside are only read after it."""
        if not segment.tables or segment.reads:
            yield
            return
        self._set_conf(self._users_settings)
        try:
            yield
        finally:
            self._set_conf(self._settings)

    def materialise(self, frame: DataFrame, name: str) -> DataFrame:
        """See ``Materialiser``."""
        path = f"{self._folder}/{name}"
        frame.write.mode("overwrite").options(**self._writing).parquet(path)
        rows: DataFrame = self._spark.read.schema(frame.schema).options(**_READING).parquet(path)
        return rows
