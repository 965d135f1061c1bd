"""Runs the tasks of a pipeline in this process, one after another; see ``driving.cluster``.

The same plan and the same tasks as on Spark, without a JVM: for tests of pipelines, and for small
data. Rows between two levels are in memory, and beyond a limit in files; see ``RowMemory``.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from beam_spark_runner.driving.outputs import MAX_FED_BYTES
from beam_spark_runner.driving.tables import NoTables, Tables
from beam_spark_runner.engine.program import Edge, LevelProgram, SideInputRows
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.driver_rows import Rows, control_rows, first_rows
from beam_spark_runner.engine.rows.reports import reports_of, without_reports
from beam_spark_runner.engine.rows.row_memory import RowMemory
from beam_spark_runner.engine.shared_file import SharedFile, share_file
from beam_spark_runner.engine.side_inputs.gathered import new_id, sorted_side_input, whole_rows
from beam_spark_runner.engine.task.chained_tasks import TaskOutputs, run_levels
from beam_spark_runner.engine.task.first_task import FirstTask
from beam_spark_runner.engine.task.local_exchange import Exchange
from beam_spark_runner.engine.task.shard_copying import NewShard, Resharding, make_shards
from beam_spark_runner.engine.task.stored_output import OutputFile
from beam_spark_runner.engine.task.stored_rows import StoredRows, read_rows
from beam_spark_runner.in_process.local_rows import (
    LocalRows,
    Partition,
    StoredPartition,
    partitions_of,
    with_spread_marks,
)
from beam_spark_runner.plan.model import Segment
from beam_spark_runner.scheduling.attempts import Report
from beam_spark_runner.storage.folder import Folder, Settings


class InProcessCluster:
    """See ``Cluster``.

    Args:
        job_id: the id of the job.
        share: makes a copy of a file that all tasks can read.
        memory: for rows between tasks.
        check_cancelled: raises if the pipeline is to end.
    """

    def __init__(
        self,
        job_id: str,
        share: Callable[[Path], SharedFile],
        memory: RowMemory,
        check_cancelled: Callable[[], None],
    ) -> None:
        self._job_id, self._share, self._check_cancelled = job_id, share, check_cancelled
        self._memory = memory
        self.tables: Tables = NoTables()

    def scope(self, title: str) -> contextlib.AbstractContextManager[None]:
        """See ``Cluster``."""
        return contextlib.nullcontext()

    def run(self, job: LevelsJob) -> LevelsResult:
        """See ``Cluster``."""
        if job.single_task_budget_s is not None:
            outputs = self._run_first_task(job, job.single_task_budget_s)
        else:
            outputs = self._run_levels(job.programs, self._inputs_of_tasks(job))
        reports: list[bytes] = []
        with contextlib.closing(outputs):
            rows = self._memory.keep(without_reports(batches, reports) for batches in outputs)
        returned = (
            None if job.single_task_budget_s is None else _rows_if_few(itertools.chain(*rows))
        )
        return LevelsResult(LocalRows(rows), reports_of(reports), returned)

    def reading(self, segment: Segment) -> contextlib.AbstractContextManager[None]:
        """See ``Cluster``."""
        return contextlib.nullcontext()

    def helping(self, run: int, help_with: Callable[[Offer], JobResult] | None) -> "_NoHelp":
        """See ``Cluster``. There are no other cores that could help."""
        return _NoHelp()

    def no_rows(self) -> LocalRows:
        """See ``Cluster``."""
        return LocalRows([[]])

    def rows_of(self, coded: bytes) -> LocalRows:
        """See ``Cluster``."""
        return LocalRows([list(schema.decoded_batches(coded))])

    def stored_rows(self, files: Sequence[OutputFile], store: Settings) -> LocalRows:
        """See ``Cluster``."""
        return LocalRows([StoredPartition(file, store) for file in files])

    def elements(self, elements: Mapping[DestinationId, bytes]) -> LocalRows:
        """See ``Cluster``."""
        return LocalRows([first_rows(elements)])

    def gather(
        self,
        rows: OutputRows | None,
        edges: Sequence[Edge],
        partitions: int,
        folder: Folder | None = None,
    ) -> Mapping[DestinationId, SideInputRows]:
        """See ``Cluster``."""
        share = self._share
        if folder is not None:
            share = functools.partial(share_file, folder=folder, share=share)
        return {
            edge.dest: sorted_side_input(
                self._sorted_rows_of(edge.dest, rows),
                edge,
                new_id(self._job_id, edge.dest),
                share,
            )
            for edge in edges
        }

    def _sorted_rows_of(
        self, dest: DestinationId, rows: OutputRows | None
    ) -> Iterator[pa.RecordBatch]:
        exchange = Exchange(1, self._memory, is_sorted=True)
        for partition in () if rows is None else partitions_of(rows.rows.rows_for([dest])):
            exchange.add(partition)
        for batches in exchange.finish():
            for _, batch in whole_rows(batches, (dest,)):
                yield batch

    def run_epoch(self, job: EpochJob, source: Rows | StoredInput) -> EpochResult:
        """See ``Cluster``."""
        submitted_ns = time.monotonic_ns()
        first = job.programs[0]
        inputs: Sequence[Iterable[pa.RecordBatch]]
        if isinstance(source, StoredInput):
            stored_rows = StoredRows.before_level(first)
            inputs = [
                read_rows(stored_rows, name, partition, 0)
                for partition, name in enumerate(source.names)
            ]
            if first.has_exchange:
                inputs = self._exchange(first, inputs)
        else:
            inputs = [control_rows(source)] * (first.partitions if first.has_exchange else 1)
        reports: list[bytes] = []
        for batches in self._run_levels(job.programs, inputs):
            for _ in without_reports(batches, reports):
                pass  # a segment stores its rows
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

    def _run_levels(
        self, programs: Sequence[LevelProgram], inputs: Sequence[Iterable[pa.RecordBatch]]
    ) -> TaskOutputs:
        return run_levels(programs, inputs, self._memory, before_task=self._check_cancelled)

    def _run_first_task(self, job: LevelsJob, budget_s: float) -> TaskOutputs:
        self._check_cancelled()
        batches = itertools.chain.from_iterable(partitions_of(job.source))
        task = FirstTask(job.programs, budget_s)
        with contextlib.closing(task.run(_input_of_task(job.programs[0], batches))) as outputs:
            yield outputs

    def _inputs_of_tasks(self, job: LevelsJob) -> Sequence[Iterable[pa.RecordBatch]]:
        """Return what each task of the first level reads."""
        first = job.programs[0]
        partitions: Sequence[Iterable[pa.RecordBatch]] = partitions_of(job.source)
        if not job.exchanges_source:
            return [_input_of_task(first, partition) for partition in partitions]
        if not job.has_marks:
            return self._exchange(first, partitions)
        return self._exchange(
            first, (with_spread_marks(partition, first.partitions) for partition in partitions)
        )

    def _exchange(
        self, program: LevelProgram, partitions: Iterable[Iterable[pa.RecordBatch]]
    ) -> Sequence[Iterable[pa.RecordBatch]]:
        exchange = Exchange.before_level(program, self._memory)
        for rows in partitions:
            exchange.add(rows)
        return exchange.finish()


def _rows_if_few(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
    """Return rows for the program of another task; None: they are too many."""
    few: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > MAX_FED_BYTES:
            return None
        few.append(batch)
    return few


def _input_of_task(program: LevelProgram, batches: Partition) -> Partition:
    """Return the rows that a task reads: those in its program, if there are any."""
    if program.batch is not None and program.batch.driver_rows:
        return list(schema.decoded_batches(program.batch.driver_rows))
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
