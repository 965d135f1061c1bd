"""A stage with a bundle under way, its reader and its writers."""

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.core.errors import BundleFailedError, RunnerError
from beam_spark_runner.core.ids import PCollectionId, StageId
from beam_spark_runner.engine.program import LevelProgram, StageProgram
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.engine.rows.writers import writer_for
from beam_spark_runner.engine.rows.writing import Outlet, Writer
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.engine.task.window_merger import merge_windows
from beam_spark_runner.engine.task.worker_runtime import JobRuntime
from beam_spark_runner.harness.bundle import Bundle, BundleResult, Receiver
from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.harness.grouping.sdk_window_fn import MergeWindows
from beam_spark_runner.harness.sdf.checkpoint_handler import RefusingCheckpointHandler
from beam_spark_runner.harness.values.constants import Kind, may_be_shared
from beam_spark_runner.harness.values.spill import ValueLogs
from beam_spark_runner.semantics.timer_loops import MOST_SET_AGAIN, TimerLoops
from beam_spark_runner.state.policy import KeyPolicy

_LOGGER = logging.getLogger(__name__)


class AbandonedError(Exception):
    """The output is no longer needed: the task was cancelled, or its job has ended."""

    _tagged_with_step = True  # so that Beam raises it unchanged, also from within user code


class StagesOfTask(Protocol):
    """The other stages that a task runs.

    Attributes:
        job: the runtime of the job in this process.
        logs: the values of large groups; any stage may refer to them until all have finished.
        policy: the key policy of stages that store no keys.
    """

    job: JobRuntime
    logs: ValueLogs
    policy: KeyPolicy

    def __getitem__(self, id_: StageId) -> "OpenStage":
        """Return a stage, and open it if that has not been done."""
        ...

    def side_inputs(
        self, program: StageProgram
    ) -> Mapping[tuple[str, str], GatheredRows | EpochView]:
        """Return the side inputs of a stage: (transform id, local name) -> lookup."""
        ...


class OpenStage:
    """A stage with a bundle under way."""

    def __init__(
        self,
        level: LevelProgram,
        program: StageProgram,
        outlet: Outlet,
        others: StagesOfTask,
        now_us: Callable[[], int],
    ) -> None:
        self.program = program
        self.callbacks: list[Callbacks] = []
        self._level = level
        self._outlet = outlet
        self._others = others
        self._logs = others.logs
        self._job = others.job
        self._side_inputs = others.side_inputs(program)
        self._harness = self._job.stage(
            program, frozenset(each.kept_as for each in self._side_inputs.values())
        )
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
        self._following = following
        self._open_input(now_us)

    def _open_input(self, now_us: Callable[[], int]) -> None:
        self._bundle = self._start_bundle()
        self._joined = JoinedInput(self._bundle, self._following)
        self._reader = reader_for(
            self.program.input,
            self._harness.input_coder,
            self._joined,
            self._logs,
            merge_windows=self._window_merger(),
        )

    def _window_merger(self) -> MergeWindows | None:
        program = self.program.window_merger
        if program is None:
            return None

        def merge(windows: Sequence[bytes]) -> Sequence[tuple[bytes, Sequence[bytes]]]:
            try:
                return merge_windows(self._job, program, windows)
            finally:
                self._bundle.enter()

        return merge

    def begin(self) -> None:
        """Do the work that precedes all input. If it raises, the stage is aborted."""

    def _start_bundle(self, policy: KeyPolicy | None = None) -> Bundle:
        policy = policy or self._others.policy
        if self.program.input.is_keyed:
            loops = TimerLoops(
                lambda: time.monotonic_ns() // 1_000, self._say_that_timers_loop, time.sleep
            )
            policy = dataclasses.replace(policy, loops=loops)
        try:
            return self._harness.start_bundle(self._receivers, self._side_inputs, policy)
        except BundleFailedError:
            self._job.discard(self.program.stage)
            raise

    def _say_that_timers_loop(self, family: str) -> None:
        step = next(iter(self.program.description.step_names.values()), self.program.name)
        _LOGGER.warning(
            "%s: one key has set the timer %s more than %s times since its input ended, and the "
            "timer still fires. An event-time timer that always sets itself again goes on until "
            "its window ends, and the global window never ends; a processing-time timer goes on "
            "for ever. So the epoch or pipeline does not end. Have its callback stop when there is "
            "nothing left to do, or use windows and an event-time timer",
            step,
            family,
            f"{MOST_SET_AGAIN:,}",
        )

    def read(self, cursor: RowCursor) -> None:
        """Process a run of rows.

        Raises:
            BundleFailedError: user code, or a coder, raised.
        """
        with charged_to(self.program.name):
            self._bundle.enter()
            self._reader.read(cursor)

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process elements that another stage of the task emits while its bundle runs."""
        self._bundle.push_from_within(values, origins)

    def flush(self) -> None:
        """Process elements that are buffered, in this stage and downstream."""
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

    @property
    def bundle(self) -> Bundle | None:
        """The bundle that runs, or None. Threads: any."""
        return self._bundle

    def _flush(self) -> None:
        for writer in self._writers:
            writer.flush()

    def abort(self) -> None:
        self._bundle.abort()


@contextlib.contextmanager
def charged_to(stage_name: str) -> Iterator[None]:
    """Assign exceptions to a step, or to the stage if no step is known."""
    try:
        yield
    except (AbandonedError, RunnerError):
        raise
    except BaseException as error:  # user code may call sys.exit
        raise failure_of(error, stage_name) from error


class JoinedInput:
    """The input of a bundle whose output other stages of the task read. See ``BundleInput``."""

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

    def __init__(self, stage: StageId, opened: StagesOfTask) -> None:
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
        """Process elements that the stage has buffered."""
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
