"""The stages of a level while a task runs them: each with its bundle, reader and writers."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated.backchannel_pb2 import Deferred, TaskProgress
from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.core.errors import BundleFailedError, RunnerError
from beam_spark_runner.core.ids import DestinationId, PCollectionId, StageId, TransformId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.bundle import Bundle, BundleResult, Receiver
from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.harness.sdf.checkpoint_handler import RefusingCheckpointHandler
from beam_spark_runner.harness.sdf.splittable import Budget, SplittableInput, run_to_end
from beam_spark_runner.harness.values.constants import Kind, may_be_shared
from beam_spark_runner.harness.values.spill import ValueLogs
from beam_spark_runner.portable.monitoring import merge
from beam_spark_runner.scheduling.attempts import Residuals
from beam_spark_runner.spark.program import LevelProgram, StageProgram
from beam_spark_runner.spark.rows.cursor import RowCursor
from beam_spark_runner.spark.rows.readers import RestrictionReader, reader_for
from beam_spark_runner.spark.rows.writers import ResidualWriter, writer_for
from beam_spark_runner.spark.rows.writing import Outlet, Writer
from beam_spark_runner.spark.task.worker_runtime import JobRuntime
from beam_spark_runner.state.policy import BATCH, KeyPolicy

_MOST_INFOS = 1_000
_MOST_PIECES = 16  # of a restriction in one round; on a larger cluster it takes another round


class AbandonedError(Exception):
    """Spark does not want the rest of the output: the task was cancelled."""

    _tagged_with_step = True  # Beam passes it on as it is, from within user code, too


class OpenStages:
    """Those stages of a level that have got elements. Used as the stages need each other.

    Args:
        level: what the task runs.
        job: what this process keeps for its job.
        emit: takes finished batches.
        partition: of the task.
        now_us: processing time, microseconds since the epoch.
        wait_us: waits so long, or raises AbandonedError.
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
        self._now_us = now_us
        self._wait_us = wait_us
        self._programs = {program.stage: program for program in level.stages}
        self._outlet = Outlet(
            emit=emit,
            row_limit_bytes=level.row_limit_bytes,
            max_element_bytes=level.max_element_bytes,
            partitions=level.partitions,
            first=partition,
        )
        self._open: dict[StageId, OpenStage] = {}
        self._finished: list[bytes] = []  # monitoring infos of bundles
        # Of large groups: any stage may hold them until all have finished.
        self.logs = ValueLogs(level.spill_bytes)
        self.callbacks: list[Callbacks] = []  # of bundles that have finished
        self.residuals: dict[
            DestinationId, Residuals
        ] = {}  # what was left, once ``finish`` has run

    def __getitem__(self, id_: StageId) -> "OpenStage":
        """The stage, opened if it is not yet."""
        stage = self._open.get(id_)
        if stage is None:
            stage = self._open[id_] = self._make(self._programs[id_])
        return stage

    def _make(self, program: StageProgram) -> "OpenStage":
        kind = _OpenSplittable if program.description.is_splittable else OpenStage
        return kind(self._level, program, self._outlet, self, self._now_us)

    def finish(self) -> list[bytes]:
        """Finish all bundles; those of splittable DoFns first, as often as they defer something.

        Such a stage follows an exchange, so that no other stage here feeds it.

        Returns:
            The monitoring infos of all bundles.
        """
        splittable = [stage for stage in self._open.values() if isinstance(stage, _OpenSplittable)]
        if splittable:
            run_to_end(splittable, self._now_us, self._wait_us)
            self.residuals = {
                each.program.input.dest: each.left for each in splittable if each.left.count
            }
        for id_ in self._programs:  # producers stand before consumers
            stage = self._open.get(id_)
            if stage is not None:
                self._finished.extend(stage.finish())
                self.callbacks += stage.callbacks
                del self._open[id_]
        self.logs.close()
        return self._finished

    def progress(self) -> TaskProgress:
        """Say how far all bundles are, in any thread; see ``Bundle.progress``."""
        progress = TaskProgress(run=self._level.run)
        infos = list(self._finished)
        for stage in list(self._open.values()):
            infos += stage.progress()
            if isinstance(stage, _OpenSplittable):
                deferred = stage.deferred()
                if deferred.count:
                    progress.deferred[stage.step].CopyFrom(deferred)
        progress.monitoring_infos.extend(merge(infos))
        return progress

    def abort(self) -> None:
        """Forget all bundles, and tear down what ran them."""
        try:
            for stage in self._open.values():
                stage.abort()
                self.callbacks += stage.callbacks
                self.job.discard(stage.program.stage)
        finally:
            self.logs.close()
        self._open = {}
        for each in self.callbacks:
            each.drop()
        self.callbacks = []


class OpenStage:
    """A stage with a bundle under way."""

    def __init__(
        self,
        level: LevelProgram,
        program: StageProgram,
        outlet: Outlet,
        others: OpenStages,
        now_us: Callable[[], int],
    ) -> None:
        self.program = program
        self.callbacks: list[Callbacks] = []
        self._level = level
        self._outlet = outlet
        self._others = others
        self._logs = others.logs
        self._job = others.job
        self._harness = self._job.stage(program)
        self._writers: list[Writer] = []
        self._receivers: dict[PCollectionId, Receiver] = {}
        following: list[NextStage] = []
        for collection, coder in self._harness.output_coders.items():
            targets: list[Receiver] = []
            for edge in program.outputs.get(collection, ()):
                writer = writer_for(edge, coder, outlet)
                self._writers.append(writer)
                targets.append(writer)
            for stage in program.local.get(collection, ()):
                following.append(NextStage(stage, others))
                targets.append(following[-1])
            self._receivers[collection] = targets[0] if len(targets) == 1 else _FanOut(targets)
        self._side_inputs: Mapping[tuple[str, str], Any] = {
            reader: self._job.side_input(source) for reader, source in program.side_inputs.items()
        }
        self._following = following
        self._open_input(now_us)

    def _open_input(self, now_us: Callable[[], int]) -> None:
        self._bundle = self._start_bundle()
        self._joined = JoinedInput(self._bundle, self._following)
        self._reader = reader_for(
            self.program.input, self._harness.input_coder, self._joined, self._logs
        )

    def _start_bundle(self, policy: KeyPolicy = BATCH) -> Bundle:
        try:
            return self._harness.start_bundle(self._receivers, self._side_inputs, policy)
        except BundleFailedError:
            self._job.discard(self.program.stage)
            raise

    def read(self, cursor: RowCursor) -> None:
        """Process a run of rows.

        Raises:
            BundleFailedError: user code, or a coder, raised.
        """
        with charged_to(self.program.name):
            self._bundle.enter()
            self._reader.read(cursor)

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process what another stage hands over while it runs itself."""
        self._bundle.push_from_within(values, origins)

    def flush(self) -> None:
        """Process what waits here, and in the stages after it."""
        self._joined.flush()

    def finish(self) -> Iterable[bytes]:
        """Finish the bundle and emit its last rows.

        Returns:
            Monitoring infos.
        """
        with charged_to(self.program.name):
            result = self._bundle.finish()
            self._keep_callbacks(result)
            RefusingCheckpointHandler(self.program.name).on_checkpoint(result)
            self._flush()
        return result.monitoring_infos

    def _keep_callbacks(self, result: BundleResult) -> None:
        self.callbacks += result.callbacks

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``."""
        return self._bundle.progress()

    def _flush(self) -> None:
        for writer in self._writers:
            writer.flush()

    def abort(self) -> None:
        self._bundle.abort()


class _OpenSplittable(OpenStage):
    """A stage whose root is a splittable DoFn: one bundle after another, until nothing is left."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        self._infos: list[bytes] = []
        self._residuals: ResidualWriter | None = None
        self.left = Residuals(0, MAX_US)  # what goes on in a later Spark job
        budget_us = self._level.round_budget_us
        self._input = SplittableInput(
            start_bundle=self._start_bundle,
            on_completed=self._count,
            input_coder=self._harness.input_coder,
            collection=self.program.collection,
            now_us=now_us,
            budget=None
            if budget_us is None
            else Budget(
                duration_us=budget_us,
                pieces=min(self._level.partitions, _MOST_PIECES),
                leave=self._leave,
            ),
        )
        self._reader = RestrictionReader(self.program.input, self._harness.input_coder, self._input)

    @property
    def step(self) -> TransformId:
        """The splittable DoFn."""
        return next(iter(self.program.description.step_names))

    def deferred(self) -> Deferred:
        """What waits in this task."""
        return Deferred(count=self._input.pending(), hold_us=self._input.watermark_hold_us())

    def progress(self) -> Sequence[bytes]:
        """See ``Bundle.progress``."""
        return [*self._infos, *self._input.progress()]

    def _leave(self, element: WindowedValue, due_us: int, hold_us: int) -> None:
        if self._residuals is None:
            self._residuals = ResidualWriter(
                self.program.input, self._harness.input_coder, self._outlet
            )
            self._writers.append(self._residuals)
        self._residuals.accept_residual(element, due_us)
        self.left = Residuals(self.left.count + 1, min(self.left.hold_us, hold_us))

    def read(self, cursor: RowCursor) -> None:
        with charged_to(self.program.name):
            self._reader.read(cursor)

    def run_due(self) -> bool:
        """See ``splittable.Deferring``."""
        with charged_to(self.program.name):
            return self._input.run_due()

    def next_due_us(self) -> int | None:
        """See ``splittable.Deferring``."""
        return self._input.next_due_us()

    def _count(self, result: BundleResult) -> None:
        self._keep_callbacks(result)
        self._infos += result.monitoring_infos
        if len(self._infos) > _MOST_INFOS:
            self._infos = list(merge(self._infos))

    def finish(self) -> Iterable[bytes]:
        """Emit the last rows of bundles that have all been finished."""
        with charged_to(self.program.name):
            self._flush()
        return merge(self._infos)

    def abort(self) -> None:
        self._input.abort()


@contextlib.contextmanager
def charged_to(stage_name: str) -> Iterator[None]:
    """Charge what is raised inside to a step; to the stage, if no step is known."""
    try:
        yield
    except (AbandonedError, RunnerError):
        raise
    except BaseException as error:  # user code may call sys.exit
        raise failure_of(error, stage_name) from error


class JoinedInput:
    """The input of a bundle whose output goes on to other stages. See ``BundleInput``."""

    def __init__(self, bundle: Bundle, following: "Sequence[NextStage]") -> None:
        self.push = bundle.push
        self.advance_key = bundle.advance_key
        self._bundle = bundle
        self._following = following

    def flush(self) -> None:
        self._bundle.flush()
        for stage in self._following:
            stage.flush()


class NextStage:
    """Opens the stage downstream of a pointwise edge with its first element."""

    def __init__(self, stage: StageId, opened: OpenStages) -> None:
        self._stage = stage
        self._opened = opened
        self._push: Callable[[list[Any], list[WindowedValue]], None] | None = None

    def accept(self, windowed_value: WindowedValue) -> None:
        self.accept_chunk([windowed_value.value], [windowed_value])

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        if self._push is None:
            self._push = self._opened[self._stage].push_from_within
        self._push(values, origins)

    def flush(self) -> None:
        """Process what waits in the stage."""
        if self._push is not None:
            self._opened[self._stage].flush()


class _FanOut:
    def __init__(self, targets: list[Receiver]) -> None:
        self._targets = targets

    def accept(self, windowed_value: WindowedValue) -> None:
        for target in self._targets:
            target.accept(windowed_value)

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        if may_be_shared(values, Kind.OWN):
            for target in self._targets:
                target.accept_chunk(values, origins)
            return
        for value, origin in zip(values, origins, strict=True):
            self.accept(origin.with_value(value))
