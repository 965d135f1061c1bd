"""The cluster on which a simulated driver runs a bounded plan."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from beam_spark_runner.backchannel.offers import Offer, Offers
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.driving.cluster import JobResult, LevelsJob, LevelsResult
from beam_spark_runner.driving.output_rows import AmbiguousRowsError, OutputRows
from beam_spark_runner.driving.tables import NoTables, Tables
from beam_spark_runner.engine.program import Edge, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.scheduling.attempts import Ambiguous, ambiguous_runs
from beam_spark_runner.spark.driver.helping_job import HelpingJob
from beam_spark_runner.storage.folder import Folder
from tests.unit.simulation.batch import jobs
from tests.unit.simulation.batch.jobs import Job
from tests.unit.simulation.batch.rows import (
    ClusterError,
    Partition,
    Row,
    Stored,
    StoredRows,
    coded,
    consumed,
    decoded,
    partitions_of,
)

_GIVES_UP = 0.1
"""Probability that a first task makes too many rows for the driver."""


class Surroundings(jobs.Surroundings, Protocol):
    """What the cluster sees of the world.

    Attributes:
        offers: those of first tasks, on their way to the driver.
    """

    offers: Offers

    def crashed(self, error: ClusterError) -> None:
        """Learn that the driver has been told that machines were lost."""
        ...


class SimulatedCluster:
    """See ``driving.cluster.Cluster``, as far as bounded pipelines without tables use it.

    Attributes:
        running: the jobs that run.
        stored: what jobs have stored for later ones.
    """

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self.tables: Tables = NoTables()
        self.running: list[Job] = []
        self.stored: list[Stored] = []

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a bounded pipeline uses Cluster.{name}")

    def scope(self, title: str) -> AbstractContextManager[None]:
        return nullcontext()

    def reading(self, segment: Segment) -> AbstractContextManager[None]:
        return nullcontext()

    def machines_were_lost(self, error: BaseException) -> bool:
        found = _cluster_error(error)
        if found.lost:
            self._world.crashed(found)
        return found.lost

    def reason_of(self, error: BaseException) -> str:
        return str(_cluster_error(error))

    def levels_after(self, error: BaseException) -> int | None:
        return _cluster_error(error).levels_after

    def run(self, job: LevelsJob) -> LevelsResult | None:
        running = Job(self._world, job)
        self.running.append(running)
        try:
            partitions = running.run_tasks()
        finally:
            self.running.remove(running)
        if running.in_one_task:
            return self._of_first_task(partitions)
        # A job that materialises nothing has reports, but no rows that could be read.
        rows = StoredRows(partitions if job.name is not None else [], self._read)
        self.stored += [version for each in rows.partitions for version in each.versions]
        reports = [report for each in partitions for report in each.versions[0].reports]
        self._world.random.shuffle(reports)
        return LevelsResult(rows, reports)

    def _of_first_task(self, partitions: Sequence[Partition]) -> LevelsResult | None:
        """Return what came to the driver, if it was not too much."""
        if self._world.random.random() < _GIVES_UP:
            return None
        (stored,) = (each.versions[0] for each in partitions)
        returned = schema.decoded_batches(coded(stored.rows))
        rows = StoredRows([Partition([stored])], self._read)
        return LevelsResult(rows, stored.reports, returned)

    def helping(self, run: int, help_with: Callable[[Offer], JobResult] | None) -> HelpingJob:
        return HelpingJob(self._world.offers, self.cancel, run, help_with)

    def cancel(self) -> None:
        """End all jobs that run."""
        for job in self.running:
            job.fail("cancelled", lost=False)

    def no_rows(self) -> StoredRows:
        return self._of_driver([])

    def rows_of(self, coded: bytes) -> StoredRows:
        return self._of_driver(decoded(coded))

    def elements(self, elements: Mapping[DestinationId, bytes]) -> StoredRows:
        return self._of_driver([Row(int(dest), 0, 0, 0) for dest in elements])

    def gather(
        self,
        rows: OutputRows | None,
        edges: Sequence[Edge],
        partitions: int,
        folder: Folder | None = None,
    ) -> Mapping[DestinationId, SideInputRows]:
        found: list[Row] = []
        if rows is not None and rows.returned is not None:
            found = decoded(schema.coded_batches(rows.returned))
        elif rows is not None:
            read = [self._read(each) for each in partitions_of(rows.rows)]
            made_by = [consumed(each.marks) for each in read]
            if runs := ambiguous_runs(made_by, rows.made_by, is_exchanged=False):
                raise AmbiguousRowsError(Ambiguous(runs, "other attempts' rows were gathered"))
            found = [row for each in read for row in each.rows]
        return {
            edge.dest: SideInputRows(
                id=str(edge.dest),
                code=edge.code,
                inline=coded(row for row in found if row.dest == edge.dest),
            )
            for edge in edges
        }

    def _of_driver(self, rows: Sequence[Row]) -> StoredRows:
        return StoredRows([Partition([Stored(rows)])], self._read)

    def _read(self, partition: Partition) -> Stored:
        self._world.pause()
        return partition.read(self._world.random)


def _cluster_error(error: BaseException) -> ClusterError:
    if not isinstance(error, ClusterError):
        raise error  # a fault of the driver, or of the simulation
    return error
