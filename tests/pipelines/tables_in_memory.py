"""Tables of this process, for streams without a Spark: of Delta, of Iceberg and of a database."""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa

from beam_spark_runner.driving.tables import NoTables
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task.table_files import TableFiles
from beam_spark_runner.in_process import cluster
from beam_spark_runner.job.run import job
from beam_spark_runner.recovery.begun_writes import (
    ICEBERG,
    JDBC,
    Found,
    Outcome,
    TargetState,
    has_mark,
)
from beam_spark_runner.recovery.epoch_writes import EpochWrite, outcome_of
from tests.pipelines.dying_drivers import Deaths, Died

_COLUMNS = pa.schema([("id", pa.int64())])


class TablesInMemory(NoTables):
    """All steps append to one table; see ``driving.tables``.

    Args:
        kind: of the table.

    Attributes:
        commits: the mark of each commit, and its rows.
        dies_at: the number of the commit around which the driver dies, from 0. None: it does not.
        has_written: whether it dies after it.
        deaths: of the same driver.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind
        self._epochs: dict[str, int] = {}  # the newest one of each writer
        self.commits: list[tuple[str, list[int]]] = []
        self.dies_at: int | None = None
        self.has_written = False
        self.deaths: Deaths | None = None

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Let pipelines that run in this process write them."""
        with (
            mock.patch.object(job, "tables_of", return_value=self),
            mock.patch.object(cluster, "NoTables", return_value=self),
        ):
            yield

    def ids(self) -> list[int]:
        """Return the ids of all rows, in order."""
        return sorted(id_ for _, ids in self.commits for id_ in ids)

    def to_append(self, step: str) -> "TablesInMemory":
        return self

    def state(self) -> TargetState:
        version = str(len(self.commits) or "")
        return TargetState(exists=bool(self.commits), kind=self._kind, version=version)

    def is_written(self, write: EpochWrite) -> bool:
        if self._kind == JDBC:
            return write.epoch <= self._epochs.get(write.writer, 0)
        marks = {str(number): mark for number, (mark, _) in enumerate(self.commits, 1)}
        parents = {number: str(int(number) - 1) if number != "1" else None for number in marks}
        known = has_mark(marks, parents, write.begun()) if self._kind == ICEBERG else None
        result = outcome_of(write, Found(self.state(), known))
        assert result != Outcome.UNKNOWN
        return result == Outcome.IS_WRITTEN

    def append(self, write: EpochWrite, places: ShardLocations) -> None:
        dies = self.dies_at == len(self.commits)
        if (dies and not self.has_written) or (self.deaths and self.deaths.has_died()):
            raise Died
        batches = TableFiles(places, _COLUMNS).read(write.files)
        ids = [id_ for batch in batches for id_ in batch["id"].to_pylist()]
        assert len(ids) == write.rows
        if self._kind == ICEBERG or write.epoch > self._epochs.get(write.writer, 0):
            self.commits.append((write.mark, ids))
        self._epochs[write.writer] = max(write.epoch, self._epochs.get(write.writer, 0))
        if dies:
            raise Died

    def close(self) -> None:
        pass

    def reason_for(self, error: BaseException) -> str:
        return str(error)


def spark_less(*flags: Any) -> list[str]:
    """Return flags of a pipeline in this process."""
    return ["--spark_master_url=in-process", *map(str, flags)]
