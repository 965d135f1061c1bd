"""Runs a task of one level: it reads rows, runs bundles, and emits rows and one report.

The bundles run in their own thread and push batches into a queue while
Spark pulls them out; see ``TaskOutput``.
"""

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator

import pyarrow as pa

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.backchannel.worker import IS_KEPT
from beam_spark_runner.core.errors import (
    InvariantError,
    LostRowsError,
    RunnerError,
)
from beam_spark_runner.engine.level_stacks import named_by_level
from beam_spark_runner.engine.program import BatchPart, LevelProgram
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.marks import mark_to_keep, marks_for
from beam_spark_runner.engine.rows.reports import failure_proto, report_row
from beam_spark_runner.engine.rows.table_rows import with_tables
from beam_spark_runner.engine.stages.charging import AbandonedError
from beam_spark_runner.engine.task.deep_chains import room_for
from beam_spark_runner.engine.task.epoch_stages import EpochStages
from beam_spark_runner.engine.task.garbage_collection import exempt_from_collection
from beam_spark_runner.engine.task.keyed_shards import open_keyed_shards
from beam_spark_runner.engine.task.lull_watch import LullWatch
from beam_spark_runner.engine.task.open_stages import OpenStages
from beam_spark_runner.engine.task.returned_rows import ReturnedRows
from beam_spark_runner.engine.task.stored_output import StoredOutput
from beam_spark_runner.engine.task.stored_rows import RowFile
from beam_spark_runner.engine.task.task_input import TaskInput
from beam_spark_runner.engine.task.task_output import TaskOutput
from beam_spark_runner.engine.task.task_shard import open_shard_of, row_file, seal
from beam_spark_runner.engine.worker.runtime import JobRuntime, worker
from beam_spark_runner.harness.program_folders import extend_import_path, working_in
from beam_spark_runner.state.remote.loaded_packs import PackCache

_LOGGER = logging.getLogger(__name__)
_THREAD = "beam-bundle"


class _PoisonedError(Exception):
    """A task upstream has failed in its last attempt, so that its rows are incomplete."""

    _tagged_with_step = True


@contextlib.contextmanager
def at_home(program: LevelProgram) -> Iterator[None]:
    """Make this process one of the user's program for a task, which may end in it.

    A Python worker starts in the JVM's working folder, and may serve other programs, too.
    """
    exempt_from_collection()
    extend_import_path(program.limits.import_path)
    folder = program.limits.working_folder
    with working_in(folder) if folder is not None else contextlib.nullcontext():
        yield


class LevelTask:
    """One attempt at one partition of one level.

    Args:
        program: the program of the level.
        partition: which partition.
        attempt_number: how many attempts Spark has made before.
        unread: returns how many of the partition's rows the task does not get; see ``first_task``.
    """

    def __init__(
        self,
        program: LevelProgram,
        partition: int = 0,
        attempt_number: int = 0,
        unread: Callable[[], int] = lambda: 0,
    ) -> None:
        self._program = program
        self._output = TaskOutput()
        self._emit = self._output.emit
        self._attempt = random.SystemRandom().getrandbits(63)
        self._partition = partition
        self._unread = unread
        self._is_last_attempt = attempt_number + 1 >= program.limits.max_attempts
        self._passes_on = False  # a later Spark job processes this task's input
        self._epoch: reports_pb2.Epoch | None = None
        self._file: RowFile | None = None  # stores the rows, in place of Spark's exchange
        self._batch = program.batch or BatchPart()
        self._stores_rows = program.epoch is not None and program.epoch.stores_rows
        place = self._batch.output_place
        self._stored_output = (
            None if place is None else StoredOutput(place, partition, self._attempt)
        )
        self._returned_rows = ReturnedRows(self._batch.returned_dests, self._batch.returned_bytes)
        self._stages: OpenStages | None = None
        self._lull_watch = LullWatch(
            program.limits.stuck_s, _THREAD, self._output.users.interrupt, lambda: self._stages
        )

    def _status(self) -> str:
        level, step = self._program.level, self._lull_watch.describe()
        return f"partition {self._partition} of level {level}, in {step}"

    def opening_s(self) -> float:
        """Return the time that opening stages has taken so far: see ``OpenStages``."""
        return 0.0 if self._stages is None else self._stages.opening_s()

    @property
    def attempt(self) -> int:
        """The number that this attempt has drawn."""
        return self._attempt

    def run(self, batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
        """Process the partition; yield rows, marks and the report.

        An attempt that ends with a report has read all of ``batches``.
        """
        thread = threading.Thread(
            target=named_by_level(self._program.level, self._produce),
            args=(with_tables(batches),),
            name=_THREAD,
            daemon=True,
        )
        with room_for(sum(len(stage.description.step_names) for stage in self._program.stages)):
            thread.start()
        has_ended = False
        try:
            yield from self._output.read(self._lull_watch)
            has_ended = True
        finally:
            self._output.stop_reading()
            # If it is final, Spark ends this process, and with it user code that cannot be ended.
            if not self._lull_watch.is_final:
                thread.join()
                if not has_ended:
                    worker.release_job(self._program.job_id)

    def _emit_rows(self, batch: pa.RecordBatch) -> None:
        """Emit rows for tasks of later levels: into their file, or to Spark."""
        self._returned_rows.add_from(batch)
        if self._file is None:
            self._emit(batch)
            return
        self._output.emitted_bytes += batch.nbytes
        with self._output.users.sheltered():
            self._file.write(batch)
        if self._output.is_abandoned:
            raise AbandonedError

    def _produce(self, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            with worker.working_for(self._program, self._output.abandon) as job:
                kind = OpenStages if self._program.epoch is None else EpochStages
                stages = kind(
                    self._program,
                    job,
                    self._emit_rows,
                    self._partition,
                    _now_us,
                    self._output.wait_us,
                )
                self._stages = stages
                self._run(job, stages, batches)
        except BaseException as error:  # the runner's own: ``_run`` raises nothing
            self._output.fail(error)

    def _run(self, job: JobRuntime, stages: OpenStages, batches: Iterator[pa.RecordBatch]) -> None:
        task_input = TaskInput(batches, self._emit)
        try:
            report = reports_pb2.TaskReport(
                level=self._program.level, partition=self._partition, attempt=self._attempt
            )
            try:
                with (
                    job.running(self._program, self._attempt, stages.progress, self._status),
                    self._output.users.running(),
                ):
                    if self._output.is_abandoned:
                        raise AbandonedError
                    if isinstance(stages, EpochStages):
                        infos = self._process_epoch(task_input, stages, report, job.packs)
                        report.monitoring_infos.extend(infos)
                    elif self._stored_output is not None:
                        self._process_and_store(self._stored_output, task_input, stages, report)
                    else:
                        self._process_level(task_input, stages, report)
            except _PoisonedError:
                stages.abort()
                report.poisoned = True
            except LostRowsError:
                raise  # the driver has the rows made again, whichever attempt this is
            except (AbandonedError, RunnerError) as error:
                failure = self._lull_watch.error or error
                if isinstance(failure, AbandonedError):
                    raise
                stages.abort()
                if not self._is_last_attempt:
                    # Without its causes: Spark formats them, too, and they are the user's objects.
                    raise failure from None
                report.failure.CopyFrom(failure_proto(failure))
            if report.poisoned or report.HasField("failure"):
                task_input.drain()
            self._complete(report, task_input)
            report.work.CopyFrom(stages.work.proto())
            if not (IS_KEPT or self._program.limits.in_program):  # it gets no other task
                job.tear_down()
            callbacks, stages.callbacks = stages.callbacks, []
            if callbacks:
                # If it is never accepted, they are dropped after a later epoch or with the job.
                epoch = None if self._epoch is None else self._epoch.number
                report.finalizes = job.hold_callbacks(self._attempt, callbacks, epoch)
            report.worker, report.messages_sent = job.end_task()
            if not (self._stores_rows or self._stored_output):
                self._emit_marks(
                    stages,
                    failed=report.poisoned or report.HasField("failure"),
                    left_residuals=self._passes_on or bool(report.residuals),
                )
            self._emit(report_row(report, self._program.partitions))
            self._output.finish()
        except AbandonedError as error:
            stages.abort()
            self._output.fail(error)  # the job has ended, and Spark may not know it yet
        except BaseException as error:
            stages.abort()
            if not self._output.fail(error):
                _LOGGER.warning(
                    "a task failed after Spark had stopped reading its output", exc_info=error
                )

    def _complete(self, report: reports_pb2.TaskReport, task_input: TaskInput) -> None:
        """Add to a report what the task has read and emitted."""
        for run, attempts in task_input.marks.consumed().items():
            report.consumed[run].CopyFrom(attempts)
        report.emitted_bytes = self._output.emitted_bytes
        report.unread_rows = self._unread()
        if (coded_rows := self._returned_rows.coded()) is not None:
            report.returned_rows = coded_rows

    def _process_level(
        self, task_input: TaskInput, stages: OpenStages, report: reports_pb2.TaskReport
    ) -> None:
        report.monitoring_infos.extend(self._process(task_input, stages))
        for dest, residuals in stages.residuals.items():
            proto = reports_pb2.Residuals(count=residuals.count, hold_us=residuals.hold_us)
            report.residuals[dest].CopyFrom(proto)

    def _process_and_store(
        self,
        output: StoredOutput,
        task_input: TaskInput,
        stages: OpenStages,
        report: reports_pb2.TaskReport,
    ) -> None:
        """Run the stages over the input, and store their rows and the finish record."""
        with output.rows() as self._file:
            self._process_level(task_input, stages, report)
            if self._file is not None:
                self._emit_marks(stages, failed=False, left_residuals=bool(report.residuals))
                self._file.finish()
        self._complete(report, task_input)
        output.finish(report)

    def _process(self, task_input: TaskInput, stages: OpenStages) -> list[bytes]:
        """Run the stages over the input.

        Returns:
            The monitoring infos of all bundles.
        """
        if self._batch.may_pass_on:
            task_input.read_marks_first()
            self._passes_on = task_input.marks.left_residuals
            if self._passes_on:
                self._pass_on(task_input)
                stages.partitions.pass_on(self._arrived_partitions(task_input))
                return []
        return self._run_stages(task_input, stages)

    def _run_stages(self, task_input: TaskInput, stages: OpenStages) -> list[bytes]:
        stage_of = {int(program.input.dest): program.stage for program in self._program.stages}
        cursor = RowCursor(_unless_poisoned(task_input), stage_of, self._emit_rows)
        has_begun = False
        while cursor.load():
            if not has_begun:
                stages.work.begin(cursor)
                has_begun = True
            stages[stage_of[cursor.dest]].read(cursor)
        stages.partitions.arrived = self._arrived_partitions(task_input)
        stages.end_reading()
        try:
            return stages.finish()
        finally:
            stages.work.finish()

    def _arrived_partitions(self, task_input: TaskInput) -> frozenset[int]:
        """Return the destinations of which the task got a partition, maybe without rows.

        Without an exchange, it reads what one earlier task has written, whose number may differ.
        """
        partition_of = task_input.marks.partition_of
        if not self._program.has_exchange:
            return frozenset().union(*partition_of.values())
        return frozenset(partition_of.get(self._partition, ()))

    def _process_epoch(
        self,
        task_input: TaskInput,
        stages: EpochStages,
        report: reports_pb2.TaskReport,
        packs: PackCache,
    ) -> list[bytes]:
        """Run the stages over the input and the data in their shard, and seal the shard.

        Returns:
            The monitoring infos of all bundles.
        """
        task_input.read_marks_first()
        marks = task_input.marks
        if marks.failed:
            raise _PoisonedError
        epoch = marks.epoch
        if epoch is None:
            raise InvariantError("a task of an epoch got no mark")
        self._epoch = epoch
        with contextlib.ExitStack() as stack:
            if self._stores_rows:
                self._file = stack.enter_context(
                    row_file(self._program, epoch, report.partition, self._attempt)
                )
            shard = stack.enter_context(open_shard_of(self._program, epoch, report.partition))
            keyed = stack.enter_context(
                open_keyed_shards(self._program, epoch, report.partition, packs)
            )
            stages.begin(epoch, marks.watermarks_us, shard, keyed)
            infos = self._run_stages(task_input, stages)
            if self._file is not None:
                self._emit_marks(stages, failed=False, left_residuals=False)
                self._file.finish()
            report.watermarks_us.update(stages.watermarks.inputs_us)
            report.looks_up_us.update(stages.watermarks.looks_up_us)
            report.finished.extend(stages.finished_inputs())
            for dest, status in stages.statuses().items():
                report.stages[dest].CopyFrom(status)
            report.table_rows.extend(stages.table_rows)
            if shard is not None:
                for step, residuals in stages.restrictions().items():
                    report.deferred[step].CopyFrom(residuals)
                report.views.extend(stages.views)
                report.shard.CopyFrom(seal(shard, keyed, self._attempt, stages))
            report.spent_us = stages.spent_us()
        return infos

    def _pass_on(self, task_input: TaskInput) -> None:
        """Emit the input without its marks, for a later Spark job.

        A splittable DoFn upstream has left residuals: a grouping would fire too early.
        """
        for batch in _unless_poisoned(task_input):
            self._emit_rows(schema.conformed(batch))

    def _emit_marks(self, stages: OpenStages, *, failed: bool, left_residuals: bool) -> None:
        mark = reports_pb2.AttemptMark(attempt=self._attempt, epoch=self._epoch)
        if stages.partitions.sent:
            mark.partition = self._partition
            mark.partition_of.extend(sorted(stages.partitions.sent))
        if isinstance(stages, EpochStages):
            mark.watermarks_us.update(stages.watermarks.outputs_us)
        if self._program.has_next:
            mark.failed, mark.left_residuals = failed, left_residuals
            self._emit_rows(marks_for(self._program.partitions, mark))
        else:
            mark.run = self._program.run
            self._emit_rows(mark_to_keep(mark))


def _unless_poisoned(task_input: TaskInput) -> Iterator[pa.RecordBatch]:
    """Yield the input batches, until one has the mark of a task that failed in its last attempt.

    Raises:
        _PoisonedError: there was such a mark.
    """
    for batch in task_input:
        if task_input.marks.failed:
            break
        yield batch
    if task_input.marks.failed:
        raise _PoisonedError


def _now_us() -> int:
    return time.time_ns() // 1000
