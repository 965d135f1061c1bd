"""A task of one level: rows in, bundles, rows out, one report.

The bundles run in a thread of their own and push batches into a bounded queue
while Spark pulls them out: an element that expands to gigabytes never stands
in memory as a whole.
"""

import logging
import queue
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue
from pyspark import TaskContext

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core import routing
from beam_spark_runner.core.errors import BundleFailedError, RunnerError
from beam_spark_runner.core.ids import DestinationId, PCollectionId, StageId
from beam_spark_runner.harness import decoded, embedded
from beam_spark_runner.harness.bundle import Bundle, Receiver
from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.spark import rows
from beam_spark_runner.spark.collection import exempt_from_collection
from beam_spark_runner.spark.cursor import RowCursor
from beam_spark_runner.spark.group_readers import GroupReader
from beam_spark_runner.spark.lookup import lookup_for
from beam_spark_runner.spark.program import LevelProgram, StageProgram
from beam_spark_runner.spark.readers import reader_for
from beam_spark_runner.spark.writers import writer_for
from beam_spark_runner.spark.writing import Outlet, Writer

_LOGGER = logging.getLogger(__name__)
_QUEUE_BATCHES = 4
_END = object()


class _AbandonedError(Exception):
    """Spark does not want the rest of the output: the task was cancelled."""

    _tagged_with_step = True  # Beam passes it on as it is, from within user code, too


class _PoisonedError(Exception):
    """A task of the level before failed for good: its rows are incomplete."""

    _tagged_with_step = True


def level_function(
    program: LevelProgram,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow``. Its name is what Spark's UI shows."""

    def run_level(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        exempt_from_collection()
        return LevelTask(program).run(batches)

    run_level.__name__ = run_level.__qualname__ = program.title
    return run_level


class LevelTask:
    """One attempt at one partition of one level."""

    def __init__(self, program: LevelProgram) -> None:
        self._program = program
        self._queue: queue.Queue[Any] = queue.Queue(_QUEUE_BATCHES)
        self._abandoned = threading.Event()
        self._attempt = random.SystemRandom().getrandbits(63)
        self._partition = 0
        self._consumed: list[int] = []
        self._open: dict[StageId, _OpenStage] = {}
        self._by_dest = {stage.input.dest: stage for stage in program.stages}
        self._by_stage = {stage.stage: stage for stage in program.stages}

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the partition. Reads ``batches`` to the end whatever happens."""
        context = TaskContext.get()
        self._partition = partition = context.partitionId() if context else 0
        attempt_number = context.attemptNumber() if context else 0
        is_last_attempt = attempt_number + 1 >= self._program.max_attempts
        thread = threading.Thread(
            target=self._produce,
            args=(batches, partition, is_last_attempt),
            name="beam-bundle",
            daemon=True,
        )
        thread.start()
        try:
            while True:
                item = self._queue.get()
                if item is _END:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            self._abandoned.set()
            while not self._queue.empty():
                self._queue.get_nowait()
            thread.join()

    def _emit(self, item: Any) -> None:
        while True:
            if self._abandoned.is_set():
                raise _AbandonedError
            try:
                self._queue.put(item, timeout=1.0)
            except queue.Full:
                continue
            return

    def _produce(
        self, batches: Iterator[pa.RecordBatch], partition: int, is_last_attempt: bool
    ) -> None:
        try:
            report = reports_pb2.TaskReport(
                level=self._program.level, partition=partition, attempt=self._attempt
            )
            try:
                decoded.cache.serve(self._program.job_id, self._program.cache_bytes)
                report.monitoring_infos.extend(self._process(batches))
            except _PoisonedError:
                self._abort()
                report.poisoned = True
            except _AbandonedError:
                raise
            except RunnerError as error:
                self._abort()
                if not is_last_attempt:
                    raise
                report.failure.CopyFrom(_failure_proto(error))
            if report.poisoned or report.HasField("failure"):
                self._forward_reports(batches)
            report.consumed_count = len(self._consumed)
            report.consumed_sum = sum(self._consumed) % (1 << 64)
            self._emit_marks(failed=report.poisoned or report.HasField("failure"))
            self._emit_report(report)
            self._emit(_END)
        except _AbandonedError:
            self._abort()
        except BaseException as error:
            self._abort()
            try:
                self._emit(error)
            except _AbandonedError:
                _LOGGER.warning("failed after Spark had gone", exc_info=error)

    def _process(self, batches: Iterator[pa.RecordBatch]) -> list[bytes]:
        """Run the stages over the input.

        Returns:
            The monitoring infos of all bundles.
        """
        hosted = {int(dest) for dest in self._by_dest} | {rows.CONTROL}
        cursor = RowCursor(batches, hosted, self._emit)
        while cursor.load():
            if cursor.dest == rows.CONTROL:
                self._read_marks(cursor)
                continue
            opened = self._opened(self._by_dest[DestinationId(cursor.dest)].stage)
            opened.bundle.enter()
            try:
                opened.reader.read(cursor)
            except (_AbandonedError, _PoisonedError):
                raise
            except (Exception, SystemExit) as error:  # user code may call sys.exit
                raise failure_of(error, opened.program.name) from error
        infos: list[bytes] = []
        for program in self._program.stages:
            stage = self._open.get(program.stage)
            if stage is not None:
                infos.extend(stage.finish())
                del self._open[program.stage]
        return infos

    def _opened(self, stage: StageId) -> "_OpenStage":
        if stage not in self._open:
            self._open[stage] = _OpenStage(
                self._program, self._by_stage[stage], self._emit, self._opened, self._partition
            )
        return self._open[stage]

    def _read_marks(self, cursor: RowCursor) -> None:
        block, start, end = cursor.block, cursor.position, cursor.run_end()
        assert block is not None
        cursor.position = end
        for value in block.values[start:end]:
            mark = reports_pb2.AttemptMark.FromString(value)
            self._consumed.append(mark.attempt)
            if mark.failed:
                raise _PoisonedError

    def _forward_reports(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Read on to the end of the input: Spark throws a worker away that does not."""
        for batch in batches:
            is_report = (batch.column(0).to_numpy() & rows.DEST_MASK) == rows.REPORT
            if is_report.any():
                self._emit(rows.conformed(batch.filter(pa.array(is_report))))

    def _emit_marks(self, *, failed: bool) -> None:
        if not self._program.has_next:
            return
        partitions = self._program.partitions
        mark = reports_pb2.AttemptMark(attempt=self._attempt, failed=failed)
        targets = routing.routes_to_partitions(routing.CONTROL_CODE, partitions)
        values = [mark.SerializeToString()] * partitions
        self._emit(rows.batch_of(rows.CONTROL, np.array(targets, np.int64), None, None, values))

    def _emit_report(self, report: reports_pb2.TaskReport) -> None:
        partitions = self._program.partitions
        targets = routing.routes_to_partitions(routing.REPORT_CODE, partitions)
        route = np.array([targets[report.partition % partitions]], np.int64)
        self._emit(rows.batch_of(rows.REPORT, route, None, None, [report.SerializeToString()]))

    def _abort(self) -> None:
        for stage in self._open.values():
            stage.bundle.abort()
            embedded.discard(self._program.job_id, stage.program.stage)
        self._open = {}


class _OpenStage:
    """A stage with a bundle under way, its reader and its writers."""

    def __init__(
        self,
        level: LevelProgram,
        program: StageProgram,
        emit: Callable[[pa.RecordBatch], None],
        opened: "Callable[[StageId], _OpenStage]",
        partition: int,
    ) -> None:
        self.program = program
        harness = embedded.stage_for(
            level.job_id,
            program.stage,
            program.name,
            program.description,
            frozenset(source.id for source in program.side_inputs.values()),
        )
        self._writers: list[Writer] = []
        outlet = Outlet(
            emit=emit,
            row_limit_bytes=level.row_limit_bytes,
            max_element_bytes=level.max_element_bytes,
            partitions=level.partitions,
            first=partition,
        )
        receivers: dict[PCollectionId, Receiver] = {}
        for collection, coder in harness.output_coders.items():
            targets: list[Receiver] = []
            for edge in program.outputs.get(collection, ()):
                writer = writer_for(edge, coder, outlet)
                self._writers.append(writer)
                targets.append(writer)
            for stage in program.local.get(collection, ()):
                targets.append(_NextStage(stage, opened))
            receivers[collection] = targets[0] if len(targets) == 1 else _FanOut(targets)
        side_inputs: Mapping[tuple[str, str], Any] = {
            reader: lookup_for(source) for reader, source in program.side_inputs.items()
        }
        try:
            self.bundle: Bundle = harness.start_bundle(receivers, side_inputs)
        except BundleFailedError:
            embedded.discard(level.job_id, program.stage)
            raise
        self.reader = reader_for(program.input, harness.input_coder, self.bundle)

    def finish(self) -> tuple[bytes, ...]:
        """Finish the bundle and emit its last rows."""
        try:
            result = self.bundle.finish()
            for writer in self._writers:
                writer.flush()
        except (_AbandonedError, RunnerError):
            raise
        except (Exception, SystemExit) as error:
            raise failure_of(error, self.program.name) from error
        if isinstance(self.reader, GroupReader):
            self.reader.close()
        return result.monitoring_infos


class _NextStage:
    """Opens the stage behind a pointwise edge with its first element."""

    def __init__(self, stage: StageId, opened: Callable[[StageId], _OpenStage]) -> None:
        self._stage = stage
        self._opened = opened
        self._bundle: Bundle | None = None

    def accept(self, windowed_value: WindowedValue) -> None:
        self.accept_chunk([windowed_value.value], [windowed_value])

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        if self._bundle is None:
            self._bundle = self._opened(self._stage).bundle
        self._bundle.push_from_within(values, origins)


class _FanOut:
    def __init__(self, targets: list[Receiver]) -> None:
        self._targets = targets

    def accept(self, windowed_value: WindowedValue) -> None:
        for target in self._targets:
            target.accept(windowed_value)

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        for target in self._targets:
            target.accept_chunk(values, origins)


def _failure_proto(error: RunnerError) -> reports_pb2.Failure:
    if isinstance(error, BundleFailedError):
        return reports_pb2.Failure(
            step=error.step,
            cause=error.cause,
            traceback=error.traceback_text,
            kind=type(error).__name__,
        )
    return reports_pb2.Failure(cause=str(error), kind=type(error).__name__)
