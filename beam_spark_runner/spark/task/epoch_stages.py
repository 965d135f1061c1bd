"""The stages of a level in an epoch: those that store something, and the watermarks of all."""

import dataclasses
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.harness.waiting import WAITING
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.descriptor import StageDescription
from beam_spark_runner.portable.monitoring import lateness_counter
from beam_spark_runner.portable.windowing import decode_windowing
from beam_spark_runner.semantics import watermarks
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import expiry_us
from beam_spark_runner.spark.program import Edge, LevelProgram, StageProgram
from beam_spark_runner.spark.rows.reading import StageEpoch
from beam_spark_runner.spark.side_inputs.lookup import GatheredRows
from beam_spark_runner.spark.side_inputs.views import EpochView
from beam_spark_runner.spark.task.epoch_stage import (
    SplittableInEpochs,
    StoringStage,
    ViewStage,
    WaitingStage,
    stores_keys,
    uses_shard,
)
from beam_spark_runner.spark.task.open_stage import OpenStage
from beam_spark_runner.spark.task.open_stages import OpenStages
from beam_spark_runner.spark.task.postponing_stage import (
    PostponingKeyedStage,
    StableStage,
    postpones,
)
from beam_spark_runner.spark.task.worker_runtime import JobRuntime
from beam_spark_runner.state.memory import CountValues
from beam_spark_runner.state.requests import declared_states, value_counter
from beam_spark_runner.state.shards import Shard
from beam_spark_runner.state.store import StoredState


class EpochStages(OpenStages):
    """See ``OpenStages``.

    Watermarks are microseconds of event time. All stages of the level have one, also those that
    get no elements in this epoch.

    Attributes:
        inputs_us: by destination: the watermark of a stage's input in this task.
        outputs_us: by destination in a later level: until where this task has sent its elements.
        was_cut_off: sources had more than the epoch's budget allowed.
        awaits_views: elements wait for side inputs.
        was_interrupted: timers that are due have not fired.
        awaits_commit: stable input is stored, for the epoch after this one.
        views: the windows of side inputs that have new content.
        looks_up_us: by destination that gathers a side input: the event time of the earliest
            element for which a stage of this task may still look it up.
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
        super().__init__(level, job, emit, partition, now_us, wait_us)
        self._watermarks: dict[int, int] = {}  # of inputs that other levels feed
        self._before: Mapping[int, int] = {}
        self._epoch = reports_pb2.Epoch()
        self._shard: Shard | None = None
        self._began_ns = 0
        self._made: list[OpenStage] = []  # those that use the shard
        self._late: defaultdict[TransformId | None, LateElements] = defaultdict(LateElements)
        self.inputs_us: dict[int, int] = {}
        self.outputs_us: dict[int, int] = {}
        self._view_files: dict[int, dict[bytes, str]] = defaultdict(dict)
        self.was_cut_off = self.awaits_views = False
        self.was_interrupted = self.awaits_commit = False
        self.views: list[reports_pb2.View] = []
        self.looks_up_us: dict[int, int] = {}

    def begin(
        self, epoch: reports_pb2.Epoch, watermarks_us: Mapping[int, int], shard: Shard | None
    ) -> None:
        """Begin an epoch.

        Args:
            epoch: which.
            watermarks_us: by destination: what the levels before have sent.
            shard: of the level and partition; None: no stage of the level stores anything.
        """
        self._before = dict(epoch.watermarks_us)
        self._watermarks = dict(watermarks_us)
        self._epoch = epoch
        self._shard = shard
        self._began_ns = time.monotonic_ns()
        if epoch.clock_stands:
            self.policy = dataclasses.replace(self.policy, clock_us=epoch.clock_us)
        places = self._level.shards
        assert places is not None
        for view in epoch.views:
            path = str(Path(places.deltas, view.file))
            self._view_files[view.dest][view.window] = path
        paths = {path for files in self._view_files.values() for path in files.values()}
        self.job.forget_side_inputs(besides=paths)

    @property
    def epoch(self) -> reports_pb2.Epoch:
        """What the task began with."""
        return self._epoch

    def spent_us(self) -> int:
        """Return for how long the task has run, in microseconds."""
        return (time.monotonic_ns() - self._began_ns) // 1_000

    def clock_us(self) -> int:
        """Return the processing time by which splittable DoFns wait."""
        return self._epoch.clock_us + (0 if self._epoch.clock_stands else self.spent_us())

    def store_of(self, program: StageProgram) -> StoredState:
        """Return what a stage has in the shard."""
        assert self._shard is not None
        return StoredState(self._shard, int(program.stage), _value_counter(program.description))

    def epoch_of(self, program: StageProgram) -> StageEpoch:
        """Return what a stage that stores keys begins with."""
        dest = int(program.input.dest)
        before_us = self._before.get(dest, MIN_US)
        if program.is_stable:  # another attempt may find another watermark, and another clock
            arriving_us, clock_us = before_us, self._epoch.committed_clock_us
        else:
            arriving_us = _passed_us(program, self._watermarks.get(dest, MAX_US))
            clock_us = self._epoch.clock_us
        before, now = watermarks.advance_of(before_us, arriving_us, clock_us)
        return StageEpoch(self.store_of(program), before, now, self.late_of(program))

    def late_of(self, program: StageProgram) -> LateElements:
        """Return what counts the elements that a stage drops since they come too late."""
        return self._late[program.drops_as]

    def side_inputs(
        self, program: StageProgram
    ) -> Mapping[tuple[str, str], GatheredRows | EpochView]:
        """See ``StagesOfTask.side_inputs``."""
        return {
            reader: EpochView(
                edge, self.job.job_id, self._view_files[edge.dest], self.job.side_input
            )
            for reader, edge in program.views.items()
        }

    def is_expired(self, program: StageProgram, window: Any) -> bool:
        """Whether a window of a stage's input is over, so that its elements are too late."""
        expires_us = expiry_us(window.max_timestamp().micros, program.lateness_us)
        return expires_us <= self._before.get(int(program.input.dest), MIN_US)

    def has_view(self, edge: Edge, window: Any) -> bool:
        """Whether the content of a side input is known for a window of its own.

        It is, if a pane of the window has fired; and if none can fire any more in time, since it
        is empty then.
        """
        if self._before.get(edge.dest, MIN_US) > window.max_timestamp().micros:
            return True
        encode = _window_encoder(edge.coded_windowing)
        return encode(window) in self._view_files[edge.dest]

    def finish(self) -> list[bytes]:
        """See ``OpenStages.finish``; before that, run what is due, stage by stage."""
        for program in self._level.stages:
            if uses_shard(program) and (program.stage in self._open or self._is_due(program)):
                stage = self[program.stage]
                assert isinstance(
                    stage,
                    StoringStage
                    | WaitingStage
                    | SplittableInEpochs
                    | ViewStage
                    | StableStage
                    | PostponingKeyedStage,
                )
                stage.run_due()
        infos = super().finish()
        for stage in self._made:
            if isinstance(stage, SplittableInEpochs):
                self.was_cut_off |= stage.was_cut_off
            elif isinstance(stage, ViewStage):
                self.views += stage.views
            elif isinstance(stage, StoringStage | WaitingStage):
                self.awaits_views |= stage.awaits_views
                self.was_interrupted |= stage.was_interrupted
            elif isinstance(stage, StableStage | PostponingKeyedStage):
                self.awaits_commit |= stage.awaits_commit
        self._advance_watermarks()
        return [*infos, *self._counted_late()]

    def _counted_late(self) -> Iterator[bytes]:
        for step, late in self._late.items():
            if step is not None and late.dropped:
                yield lateness_counter(step, late.dropped).SerializeToString()

    def _is_due(self, program: StageProgram) -> bool:
        if program.views and self.store_of(program).timers(WAITING, b""):
            return True
        event_us, clock_us = self.store_of(program).next_due()
        now = self.epoch_of(program).now
        until_us = self.clock_us() if program.description.is_splittable else now.clock_us
        return (event_us is not None and event_us <= now.watermark_us) or (
            clock_us is not None and clock_us <= until_us
        )

    def finished(self) -> list[int]:
        """Return the inputs of stages to which nothing comes any more, and that store nothing."""
        return [
            dest
            for program in self._level.stages
            if self.inputs_us[dest := int(program.input.dest)] == MAX_US
            and not (uses_shard(program) and not self.store_of(program).is_empty())
        ]

    def deferred(self) -> Mapping[str, reports_pb2.Residuals]:
        """Return what waits in the shard, by splittable DoFn; only those that have something."""
        found = {}
        for program in self._level.stages:
            if program.description.is_splittable:
                store = self.store_of(program)
                hold_us = store.least_hold()
                if hold_us is not None:
                    (step, *_) = program.description.step_names
                    count = store.count_holders()
                    found[str(step)] = reports_pb2.Residuals(count=count, hold_us=hold_us)
        return found

    def _advance_watermarks(self) -> None:
        """Compute ``inputs_us`` of the stages, and ``outputs_us`` of what they feed elsewhere."""
        here = {program.stage: int(program.input.dest) for program in self._level.stages}
        inputs = dict(self._watermarks)
        for program in self._level.stages:  # producers stand before consumers
            dest = int(program.input.dest)
            before_us = self._before.get(dest, MIN_US)
            output_us = max(_passed_us(program, inputs.get(dest, MAX_US)), before_us)
            self.inputs_us[dest] = output_us
            if program.is_stable and not program.description.is_splittable:
                output_us = before_us
            looks_up_us = output_us
            if uses_shard(program):
                hold_us, left_due_us = self.store_of(program).least_hold(), None
                if self._was_interrupted(program):
                    left_due_us, _ = self.store_of(program).next_due()
                output_us = watermarks.output_us(output_us, hold_us, left_due_us)
                # Restrictions hold what they say, which may be past the windows of their elements.
                is_pending = program.description.is_splittable and hold_us is not None
                looks_up_us = MIN_US if is_pending else output_us
            for view in program.views.values():
                _lower(self.looks_up_us, int(view.dest), looks_up_us)
            for edges in program.outputs.values():
                for edge in edges:
                    _lower(self.outputs_us, int(edge.dest), output_us)
            for stages in program.local.values():
                for stage in stages:
                    _lower(inputs, here[stage], output_us)
        for dest, watermark_us in self._watermarks.items():
            if dest not in here.values():  # of a level further on
                _lower(self.outputs_us, dest, watermark_us)

    def next_due(self) -> tuple[int | None, int | None]:
        """Return when the next timer of the level's stages is due: event time, processing time."""
        due = [
            self.store_of(program).next_due()
            for program in self._level.stages
            if uses_shard(program)
        ]
        events = [event_us for event_us, _ in due if event_us is not None]
        clocks = [clock_us for _, clock_us in due if clock_us is not None]
        return min(events, default=None), min(clocks, default=None)

    def _was_interrupted(self, program: StageProgram) -> bool:
        stage = self._open.get(program.stage)
        return isinstance(stage, StoringStage) and stage.was_interrupted

    def _make(self, program: StageProgram) -> OpenStage:
        if not uses_shard(program):
            return super()._make(program)
        stage = _kind(program)(self._level, program, self._outlet, self, self._now_us)
        self._made.append(stage)
        return stage


def _kind(program: StageProgram) -> type[OpenStage]:
    """Return the class of a stage that has something in the shard."""
    if program.description.is_splittable:
        return SplittableInEpochs
    if program.input.delivery is Delivery.SIDE_INPUT:
        return ViewStage
    if postpones(program):
        return PostponingKeyedStage if program.input.is_keyed else StableStage
    return StoringStage if stores_keys(program) else WaitingStage


def _passed_us(program: StageProgram, watermark_us: int) -> int:
    """Return up to where a stage has got all its elements.

    Those that come later may come in the order of time only if what is late by less than the
    allowed lateness is waited for.

    Source: Java ``DoFn.RequiresTimeSortedInput``.
    """
    if not program.input.is_time_sorted or watermark_us == MAX_US:
        return watermark_us
    return max(MIN_US, watermark_us - program.lateness_us)


def _lower(watermarks: dict[int, int], dest: int, watermark_us: int) -> None:
    watermarks[dest] = min(watermarks.get(dest, watermark_us), watermark_us)


@functools.lru_cache(64)
def _window_encoder(coded_windowing: bytes) -> Callable[[Any], bytes]:
    encode: Callable[[Any], bytes] = (
        decode_windowing(coded_windowing).windowfn.get_window_coder().encode
    )
    return encode


def _value_counter(description: StageDescription) -> CountValues:
    return _value_counter_of(description.coded_descriptor)


@functools.lru_cache(256)
def _value_counter_of(coded_descriptor: bytes) -> CountValues:
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(coded_descriptor)
    return value_counter(descriptor, declared_states(descriptor))
