"""Outputs that a later segment reads: computed once, at once, with no way back.

Never a bare ``persist``: two readers on two executors would compute a random
stage twice and see different data.
"""

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession


class Materialiser(Protocol):
    """Runs a frame and keeps its rows."""

    def materialise(self, frame: DataFrame, name: str) -> DataFrame:
        """Run ``frame`` now, exactly once, and return a frame that only reads its rows."""
        ...


class CheckpointOnExecutors:
    """Rows stay in memory and on local disk of the executors that made them.

    An executor that is lost takes its rows along; Spark then fails the job that
    reads them, and the segment is run again.
    """

    def materialise(self, frame: DataFrame, name: str) -> DataFrame:
        """See ``Materialiser``."""
        kept = frame.localCheckpoint(eager=True)
        reference = getattr(kept, "_plan", None)
        if reference is not None:
            # Spark Connect's client ties the result to the process's active session, which is
            # the user's; the rows belong to ours, and are let go there.
            kept._session = reference._spark_session = frame.sparkSession
        return kept


class FilesInSharedStorage:
    """Rows are Parquet files that every executor can read; a lost executor costs nothing."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder

    def materialise(self, frame: DataFrame, name: str) -> DataFrame:
        """See ``Materialiser``."""
        path = f"{self._folder}/{name}"
        frame.write.mode("overwrite").option("compression", "lz4_raw").parquet(path)
        return self._spark.read.schema(frame.schema).parquet(path)
