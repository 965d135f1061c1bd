"""Runs the tasks of a pipeline in this process, one after another; see ``driving.cluster``.

The same plan and the same tasks as on Spark, without a JVM: for tests of pipelines, and for small
data. All rows between two levels are in memory.
"""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from beam_spark_runner.backchannel.offers import Offer
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.rendering import message_of
from beam_spark_runner.driving.cluster import (
    EpochJob,
    EpochResult,
    JobResult,
    LevelsJob,
    LevelsResult,
    StoredInput,
)
from beam_spark_runner.driving.output_rows import OutputRows
from beam_spark_runner.driving.tables import NoTables, Tables
from beam_spark_runner.engine.program import Edge, LevelProgram, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.driver_rows import Rows, control_rows, made_rows
from beam_spark_runner.engine.rows.reports import reports_of
from beam_spark_runner.engine.shared_file import SharedFile
from beam_spark_runner.engine.side_inputs.gathered import new_id, small_side_input, whole_rows
from beam_spark_runner.engine.task.chained_tasks import exchanged, run_levels
from beam_spark_runner.engine.task.first_task import FirstTask
from beam_spark_runner.engine.task.resharding import NewShard, Resharding, make_shards
from beam_spark_runner.engine.task.stored_rows import StoredRows, read_rows
from beam_spark_runner.in_process.memory_rows import (
    MemoryRows,
    Partition,
    partitions_of,
    split_reports,
    with_spread_marks,
)
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.scheduling.attempts import Report


class InProcessCluster:
    """See ``Cluster``.

    Args:
        job_id: the id of the job.
        share: makes a copy of a file that all tasks can read.
        check_cancelled: raises if the pipeline is to end.
    """

    def __init__(
        self,
        job_id: str,
        share: Callable[[Path], SharedFile],
        check_cancelled: Callable[[], None],
    ) -> None:
        self._job_id, self._share, self._check_cancelled = job_id, share, check_cancelled
        self.tables: Tables = NoTables()

    def scope(self, title: str) -> contextlib.AbstractContextManager[None]:
        """See ``Cluster``."""
        return contextlib.nullcontext()

    def run(self, job: LevelsJob) -> LevelsResult:
        """See ``Cluster``."""
        partitions = partitions_of(job.source)
        if job.single_task_budget_s is not None:
            outputs = [self._first_task(job, job.single_task_budget_s, partitions)]
        else:
            outputs = self._levels(job.programs, _read(job, partitions))
        rows, reports = split_reports(outputs)
        return LevelsResult(rows, None, reports_of(reports))

    def reading(self, segment: Segment) -> contextlib.AbstractContextManager[None]:
        """See ``Cluster``."""
        return contextlib.nullcontext()

    def helping(self, run: int, help_with: Callable[[Offer], JobResult] | None) -> "_NoHelp":
        """See ``Cluster``. There are no other cores that could help."""
        return _NoHelp()

    def no_rows(self) -> MemoryRows:
        """See ``Cluster``."""
        return MemoryRows([[]])

    def rows_of(self, coded: bytes) -> MemoryRows:
        """See ``Cluster``."""
        return MemoryRows([list(schema.decoded_batches(coded))])

    def elements(self, elements: Mapping[DestinationId, bytes]) -> MemoryRows:
        """See ``Cluster``."""
        return MemoryRows([made_rows(elements)])

    def gather(
        self, rows: OutputRows | None, edges: Sequence[Edge], partitions: int
    ) -> Mapping[DestinationId, SideInputRows]:
        """See ``Cluster``."""
        packed: dict[int, list[pa.RecordBatch]] = {int(edge.dest): [] for edge in edges}
        for partition in () if rows is None else partitions_of(rows.rows.rows_for(packed)):
            for dest, batch in whole_rows(partition, packed):
                packed[dest].append(batch)
        return {
            edge.dest: small_side_input(
                packed[int(edge.dest)], edge, new_id(self._job_id, edge.dest), self._share
            )
            for edge in edges
        }

    def run_epoch(self, job: EpochJob, source: Rows | StoredInput) -> EpochResult:
        """See ``Cluster``."""
        submitted_ns = time.monotonic_ns()
        first = job.programs[0]
        partitions: Sequence[Partition]
        if isinstance(source, StoredInput):
            stored = StoredRows.before(first)
            partitions = [
                list(read_rows(stored, name, partition, 0))
                for partition, name in enumerate(source.names)
            ]
            if first.has_exchange:
                partitions = exchanged(first, partitions)
        else:
            partitions = [control_rows(source)] * (first.partitions if first.has_exchange else 1)
        _, reports = split_reports(self._levels(job.programs, partitions))
        return EpochResult(reports_of(reports), submitted_ns)

    def reshard(self, resharding: Resharding) -> Sequence[NewShard]:
        """See ``Cluster``."""
        return list(make_shards(resharding, range(len(resharding.new_shards()))))

    def machines_were_lost(self, error: BaseException) -> bool:
        """See ``Failures``."""
        return False

    def reason_of(self, error: BaseException) -> str:
        """See ``Failures``."""
        return message_of(error)

    def levels_after(self, error: BaseException) -> int | None:
        """See ``Failures``."""
        return None

    def close(self) -> None:
        """See ``Cluster``."""

    def _levels(
        self, programs: Sequence[LevelProgram], inputs: Sequence[Partition]
    ) -> list[list[pa.RecordBatch]]:
        return run_levels(programs, inputs, before_task=self._check_cancelled)

    def _first_task(
        self, job: LevelsJob, budget_s: float, partitions: Sequence[Partition]
    ) -> list[pa.RecordBatch]:
        self._check_cancelled()
        batches = [batch for partition in partitions for batch in partition]
        return list(FirstTask(job.programs, budget_s).run(_fed(job.programs[0], batches)))


def _read(job: LevelsJob, partitions: Sequence[Partition]) -> Sequence[Partition]:
    """Return what each task of the first level reads."""
    first = job.programs[0]
    if not job.exchanges_source:
        return [_fed(first, each) for each in partitions]
    if job.has_marks:
        partitions = with_spread_marks(partitions, first.partitions)
    return exchanged(first, partitions)


def _fed(program: LevelProgram, batches: Partition) -> Partition:
    """Return the rows that a task reads: those in its program, if there are any."""
    if program.batch is not None and program.batch.fed:
        return list(schema.decoded_batches(program.batch.fed))
    return batches


@dataclass(frozen=True, slots=True)
class _NoHelp:
    """See ``Helping``: a first task that nobody helps."""

    def __enter__(self) -> "_NoHelp":
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def stop(self) -> None:
        """See ``Helping``."""

    def result_for(self, reports: Sequence[Report]) -> JobResult | None:
        """See ``Helping``."""
        return None
