"""Tables that get the rows of a streaming pipeline, one commit of the table for each epoch."""

from dataclasses import dataclass

from beam_spark_runner.core.errors import TableError
from beam_spark_runner.driving.tables import TableToAppend
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.recovery.begun_writes import DELTA, ICEBERG, JDBC, Outcome, TargetState
from beam_spark_runner.recovery.epoch_writes import (
    SNAPSHOTS_WERE_REMOVED,
    EpochWrite,
    UnknownEpochWriteError,
    changed_kind,
    outcome_of,
)
from beam_spark_runner.spark.driver.database_tables import database_table
from beam_spark_runner.spark.driver.epoch_rows import rows_of_epoch
from beam_spark_runner.spark.driver.table_states import WriteTarget
from beam_spark_runner.spark.driver.table_writes import OpenWrite

ONLY_IN_DATABASES = (
    "keys, by which rows replace others, are for streaming pipelines that write a table of "
    "PostgreSQL (format='jdbc'): leave them out"
)
_OF_DELTA = ("txnappid", "txnversion")


@dataclass(frozen=True, slots=True)
class EpochTable:
    """See ``TableToAppend``.

    Attributes:
        opened: the write, which has passed its checks.
        kind: ``DELTA`` or ``ICEBERG``.
    """

    opened: OpenWrite
    kind: str

    @property
    def _target(self) -> WriteTarget:
        return WriteTarget(self.opened.write, self.opened.session)

    def state(self) -> TargetState:
        """See ``TableToAppend``. Delta is not asked: it knows by itself which epochs it has."""
        version = self._target.last_snapshot() if self.kind == ICEBERG else ""
        return TargetState(exists=None, kind=self.kind, version=version)

    def is_written(self, write: EpochWrite) -> bool:
        """See ``TableToAppend``."""
        if write.kind != self.kind:
            raise _unknown(write, str(self.opened.write), changed_kind(write.kind, self.kind))
        if self.kind == DELTA:
            return False
        result = outcome_of(write, self._target.find_epoch(write))
        if result == Outcome.UNKNOWN:
            raise _unknown(write, str(self.opened.write), SNAPSHOTS_WERE_REMOVED)
        return result == Outcome.IS_WRITTEN

    def append(self, write: EpochWrite, places: ShardLocations) -> None:
        """See ``TableToAppend``."""
        marks = self._target.marks_of_epoch(write)
        self.opened.save(rows_of_epoch(self.opened, write, places), "append", marks)

    def reason_for(self, error: BaseException) -> str:
        """See ``TableToAppend``."""
        return self.opened.reason_for(error)

    def close(self) -> None:
        """See ``TableToAppend``."""


def _unknown(write: EpochWrite, target: str, reason: str) -> UnknownEpochWriteError:
    return UnknownEpochWriteError(write.step, target, write.rows, write.epoch, write.mark, reason)


def epoch_table(opened: OpenWrite) -> TableToAppend:
    """Return the table that a step of a streaming pipeline writes.

    Raises:
        TableError: it cannot be written by epoch.
    """
    write, step = opened.write, opened.step
    if write.mode != "append":
        raise TableError(
            f"the mode is {write.mode}, but a streaming pipeline adds rows in each epoch: use "
            "mode='append'",
            step,
        )
    try:
        kind = WriteTarget(write, opened.session).known_kind()
    except Exception as error:
        reason = opened.reason_for(error)
        raise TableError(f"Spark cannot look at {write} now: {reason}", step) from error
    if kind == JDBC and not write.table and not write.path:
        return database_table(opened)
    if write.keys:
        raise TableError(ONLY_IN_DATABASES, step)
    if kind not in (DELTA, ICEBERG):
        raise TableError(
            f"{write} is none of Delta or Iceberg, and only their commits, and transactions of "
            "PostgreSQL (format='jdbc'), can say which epoch of a streaming pipeline they have: "
            "use such a table (format='delta' or 'iceberg' makes one), or write files with the "
            "sinks of beam.io",
            step,
        )
    if kind == DELTA and not {key.lower() for key in write.options}.isdisjoint(_OF_DELTA):
        raise TableError(
            "the options txnAppId and txnVersion are the runner's in a streaming pipeline", step
        )
    if kind == ICEBERG and opened.session.is_connect:
        # A server may still run the write of a client that has died, after the next one has asked.
        raise TableError(
            "a streaming pipeline writes tables of Iceberg only in its own Spark, and not through "
            "Spark Connect: use a table of Delta there",
            step,
        )
    return EpochTable(opened, kind)
