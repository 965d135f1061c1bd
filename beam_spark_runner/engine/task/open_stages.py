"""The stages of a level while a task runs them, each with its bundle, reader and writers."""

import time
from collections.abc import Callable, Mapping

import pyarrow as pa

from beam_spark_runner._generated.backchannel_pb2 import TaskProgress
from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.core.ids import DestinationId, StageId
from beam_spark_runner.engine.program import LevelProgram, StageProgram
from beam_spark_runner.engine.rows.writing import Outlet
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.opening import open_stage
from beam_spark_runner.engine.stages.stage import Stage
from beam_spark_runner.engine.task.due_partitions import Partitions
from beam_spark_runner.engine.task.work_of_task import WorkOfTask
from beam_spark_runner.engine.worker.runtime import JobRuntime
from beam_spark_runner.harness.beam.element_samples import ElementSamples
from beam_spark_runner.harness.bundle import Bundle
from beam_spark_runner.harness.sdf.splittable import run_to_end
from beam_spark_runner.harness.values.spilled_group import ValueLogs
from beam_spark_runner.portable.monitoring import merge
from beam_spark_runner.scheduling.attempts import Residuals
from beam_spark_runner.state.policy import BATCH

_MAX_SAMPLES = 10


class OpenStages:
    """The stages of a level that have got elements. See ``StagesOfTask``.

    Args:
        level: the program of the task.
        job: the runtime of the job that the task belongs to.
        emit: takes batches of the rows that stages emit.
        partition: the number of the task's partition.
        now_us: returns processing time, microseconds since the epoch.
        wait_us: waits for so many microseconds, or raises AbandonedError.
    """

    def __init__(
        self,
        level: LevelProgram,
        job: JobRuntime,
        emit: Callable[[pa.RecordBatch], None],
        partition: int,
        now_us: Callable[[], int],
        wait_us: Callable[[int], None],
    ) -> None:
        self.job = job
        self._level = level
        self.run = level.run  # the Spark job's number, for reports of progress
        self._now_us = now_us
        self._wait_us = wait_us
        self._programs = {program.stage: program for program in level.stages}
        self._outlet = Outlet(
            emit=emit,
            row_limit_bytes=level.limits.row_limit_bytes,
            max_element_bytes=level.limits.max_element_bytes,
            partitions=level.partitions,
            first=partition,
        )
        self._open: dict[StageId, Stage] = {}
        self.opening = ""  # name of a stage whose DoFns are being set up in this process
        self._opened_s = 0.0
        self._opening_since_s: float | None = None
        self._finished_infos: list[bytes] = []  # monitoring infos of bundles
        # Values of large groups; any stage may refer to them until all have finished.
        self.logs = ValueLogs(level.limits.group_memory_bytes)
        self.policy = BATCH
        self.partitions = Partitions(level)
        self.callbacks: list[Callbacks] = []  # of bundles that have finished
        self.residuals: dict[DestinationId, Residuals] = {}  # set by ``finish``
        self.work = WorkOfTask(level.level, partition)

    def __getitem__(self, id_: StageId) -> Stage:
        """See ``StagesOfTask``."""
        stage = self._open.get(id_)
        if stage is None:
            stage = self._open[id_] = self._open_stage(self._programs[id_])
            stage.begin()
        return stage

    def _open_stage(self, program: StageProgram) -> Stage:
        outer_name, began_s, outer_s = self.opening, time.monotonic(), self._opening_since_s
        self._opening_since_s = outer_s or began_s
        # An SDK harness may take --environment_start_timeout to start, which is no user code.
        self.opening = "" if program.description.coded_environment else program.name
        try:
            return self._make_stage(program)
        finally:
            self.opening = outer_name
            self._opening_since_s = outer_s
            if outer_s is None:
                self._opened_s += time.monotonic() - began_s

    def opening_s(self) -> float:
        """Return the time that opening stages has taken so far. Threads: any."""
        since_s = self._opening_since_s
        return self._opened_s + (0.0 if since_s is None else time.monotonic() - since_s)

    def side_inputs(
        self, program: StageProgram
    ) -> Mapping[tuple[str, str], GatheredRows | EpochView]:
        """See ``StagesOfTask.side_inputs``."""
        sources = program.in_batch.side_inputs
        return {reader: self.job.side_input(source) for reader, source in sources.items()}

    def _make_stage(self, program: StageProgram) -> Stage:
        return open_stage(StageContext(self._level, program, self._outlet, self), self._now_us)

    def finish(self) -> list[bytes]:
        """Finish all bundles; those of splittable DoFns first, with all restrictions they defer.

        A splittable stage follows an exchange, so that no other stage of the task feeds it.

        Returns:
            The monitoring infos of all bundles.
        """
        rounds = {
            stage.program.input.dest: stage.rounds
            for stage in self._open.values()
            if stage.rounds is not None
        }
        if rounds:
            run_to_end([*rounds.values()], self._now_us, self._wait_us)
            self.residuals = {
                dest: operator.residuals
                for dest, operator in rounds.items()
                if operator.residuals.count
            }
        for id_, program in self._programs.items():  # producers come before consumers
            has_partition = self.partitions.has_one_for(program, self._open)
            if has_partition and program.batch is not None and program.batch.takes_partition:
                self[id_]
            stage = self._open.get(id_)
            if stage is not None:
                self._finished_infos.extend(stage.finish())
                self.callbacks += stage.callbacks
                del self._open[id_]
        self.logs.check()
        self.logs.close()
        return self._finished_infos

    def bundles(self) -> list[Bundle]:
        """Return the bundles that run, producers before consumers. Threads: any."""
        stages = [self._open.get(id_) for id_ in self._programs]
        bundles = [stage.bundle for stage in stages if stage is not None]
        return [bundle for bundle in bundles if bundle is not None]

    def progress(self) -> TaskProgress:
        """Return the progress of all bundles; see ``Bundle.progress``. Threads: any."""
        progress = TaskProgress(run=self.run)
        infos = list(self._finished_infos)
        for stage in list(self._open.values()):
            infos += stage.progress()
            if stage.rounds is not None:
                deferred = stage.rounds.deferred()
                if deferred.count:
                    progress.deferred[stage.rounds.step].CopyFrom(deferred)
        progress.monitoring_infos.extend(merge(infos))
        if self.job.samples is not None:
            self._add_samples(progress, self.job.samples)
        progress.work = self.work.proto(*self._large_key()).SerializeToString()
        return progress

    def _add_samples(self, progress: TaskProgress, samples: ElementSamples) -> None:
        for collection, text in samples.take().items():
            progress.samples.add(collection=collection, text=text)
        for bundle in self.bundles():
            for id_, elements in bundle.samples().items():
                for element in elements[-_MAX_SAMPLES:]:
                    progress.samples.add(collection=str(id_), text=samples.text_of(element))

    def end_reading(self) -> None:
        """Note that all rows are read: the stages that know their keys are about to finish."""
        self.work.end(*self._large_key())

    def _large_key(self) -> tuple[str, str]:
        """Return the step and the text of a key that has a great part of the rows."""
        largest = self.work.largest()
        if largest is None:
            return "", ""
        for id_, program in self._programs.items():
            stage, edge = self._open.get(id_), program.input
            if int(edge.dest) == largest.dest and edge.is_grouped and stage is not None:
                return edge.name, stage.text_of_key(largest.key)
        return "", ""

    def abort(self) -> None:
        """Abort all bundles, and tear down the stages that ran them."""
        try:
            for stage in self._open.values():
                stage.abort()
                self.callbacks += stage.callbacks
                self.job.discard(stage.program.stage)
        finally:
            self.logs.close()
        self._open = {}
        for callback in self.callbacks:
            callback.drop()
        self.callbacks = []
