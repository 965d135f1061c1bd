"""The stages of a level in an epoch: those that store something, and the watermarks of all."""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pyarrow as pa
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.harness.bundle import Bundle, StoringInput
from beam_spark_runner.harness.sdf.epoch_input import EpochRestrictions
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.descriptor import StageDescription
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.spark.program import LevelProgram, StageProgram
from beam_spark_runner.spark.rows.group_reader import GroupReader
from beam_spark_runner.spark.rows.keyed_reader import KeyedReader
from beam_spark_runner.spark.rows.readers import ElementReader, reader_for
from beam_spark_runner.spark.rows.reading import StageEpoch
from beam_spark_runner.spark.task.open_stage import (
    JoinedInput,
    NextStage,
    OpenStage,
    charged_to,
)
from beam_spark_runner.spark.task.open_stages import OpenStages
from beam_spark_runner.spark.task.splittable_stage import OpenSplittable
from beam_spark_runner.spark.task.worker_runtime import JobRuntime
from beam_spark_runner.state.memory import CountValues
from beam_spark_runner.state.policy import KeyPolicy
from beam_spark_runner.state.requests import declared_states, value_counter
from beam_spark_runner.state.shards import Shard
from beam_spark_runner.state.store import StoredState

_IDLE_US = 100_000


class EpochStages(OpenStages):
    """See ``OpenStages``.

    Watermarks are microseconds of event time. All stages of the level have one, also those that
    get no elements in this epoch.

    Attributes:
        inputs_us: by destination: the watermark of a stage's input in this task.
        outputs_us: by destination in a later level: until where this task has sent its elements.
        was_cut_off: sources had more than the epoch's budget allowed.
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
        self.inputs_us: dict[int, int] = {}
        self.outputs_us: dict[int, int] = {}
        self.was_cut_off = False

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
        now_us = max(before_us, self._watermarks.get(dest, MAX_US))
        # At the end of all input nothing waits for a clock.
        clock_us = MAX_US if now_us == MAX_US else self._epoch.clock_us
        before = Instant(before_us, self._epoch.clock_us)
        return StageEpoch(self.store_of(program), before, Instant(now_us, clock_us))

    def finish(self) -> list[bytes]:
        """See ``OpenStages.finish``; before that, run what is due, stage by stage."""
        for program in self._level.stages:
            if uses_shard(program) and (program.stage in self._open or self._is_due(program)):
                stage = self[program.stage]
                assert isinstance(stage, _StoringStage | _SplittableInEpochs)
                stage.run_due()
                if isinstance(stage, _SplittableInEpochs):
                    self.was_cut_off |= stage.was_cut_off
        infos = super().finish()
        self._advance_watermarks()
        return infos

    def _is_due(self, program: StageProgram) -> bool:
        event_us, clock_us = self.store_of(program).next_due()
        now = self.epoch_of(program).now
        until_us = self.clock_us() if program.description.is_splittable else now.clock_us
        return (event_us is not None and event_us <= now.watermark_us) or (
            clock_us is not None and clock_us <= until_us
        )

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
            output_us = max(inputs.get(dest, MAX_US), self._before.get(dest, MIN_US))
            self.inputs_us[dest] = output_us
            if uses_shard(program):
                hold_us = self.store_of(program).least_hold()
                output_us = min(output_us, MAX_US if hold_us is None else hold_us)
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

    def _make(self, program: StageProgram) -> OpenStage:
        if not uses_shard(program):
            return super()._make(program)
        kind = _SplittableInEpochs if program.description.is_splittable else _StoringStage
        return kind(self._level, program, self._outlet, self, self._now_us)


class _StoringStage(OpenStage):
    """A stage whose keys outlive the epoch."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        stages = cast(EpochStages, self._others)
        self._epoch = epoch = stages.epoch_of(self.program)
        clock_us = epoch.before.clock_us if stages.epoch.clock_stands else None
        self._bundle = self._start_bundle(
            KeyPolicy(epoch.now, epoch.store, epoch.before.watermark_us, clock_us=clock_us)
        )
        if self.program.input.is_keyed:
            bundle = cast(StoringInput, self._bundle)
            self._joined = _JoinedStoringInput(bundle, self._bundle, self._following)
        else:
            self._joined = JoinedInput(self._bundle, self._following)
        self._reader = reader_for(
            self.program.input, self._harness.input_coder, self._joined, self._logs, epoch
        )

    def run_due(self) -> None:
        """Fire all timers and panes that are due, key by key."""
        reader, store, now = self._reader, self._epoch.store, self._epoch.now
        assert isinstance(reader, GroupReader | KeyedReader)
        with charged_to(self.program.name):
            self._bundle.enter()
            for _, key in store.due(now.watermark_us, now.clock_us):
                reader.fire(key)


class _JoinedStoringInput(JoinedInput):
    """See ``StoringInput``."""

    def __init__(
        self, keys: StoringInput, bundle: Bundle, following: "Sequence[NextStage]"
    ) -> None:
        super().__init__(bundle, following)
        self.begin_key = keys.begin_key
        self.advance_key_until = keys.advance_key_until


class _SplittableInEpochs(OpenSplittable):
    """Goes on until the budget of the epoch is spent; what is left is stored."""

    _input: EpochRestrictions

    def _open_restrictions(self, now_us: Callable[[], int]) -> None:
        stages = cast(EpochStages, self._others)
        self._input = EpochRestrictions(
            store=stages.store_of(self.program),
            start_bundle=self._start_bundle,
            on_completed=self._count,
            input_coder=self._harness.input_coder,
            collection=self.program.collection,
            now_us=stages.clock_us,
            spent_us=stages.spent_us,
            budget_us=stages.epoch.budget_us,
            idle_us=0 if stages.epoch.clock_stands else _IDLE_US,
        )
        self._reader = ElementReader(self.program.input, self._harness.input_coder, self._input)

    @property
    def was_cut_off(self) -> bool:
        """See ``EpochRestrictions``."""
        return self._input.was_cut_off

    def run_due(self) -> None:
        """See ``EpochRestrictions.run_due``."""
        with charged_to(self.program.name):
            self._input.run_due()


def uses_shard(program: StageProgram) -> bool:
    """Whether a stage of a streaming pipeline has something in the shard."""
    return (
        program.input.is_keyed
        or program.input.delivery is Delivery.GROUP_BY_KEY
        or program.description.is_splittable
    )


def _lower(watermarks: dict[int, int], dest: int, watermark_us: int) -> None:
    watermarks[dest] = min(watermarks.get(dest, watermark_us), watermark_us)


def _value_counter(description: StageDescription) -> CountValues:
    return _value_counter_of(description.coded_descriptor)


@functools.lru_cache(256)
def _value_counter_of(coded_descriptor: bytes) -> CountValues:
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(coded_descriptor)
    return value_counter(descriptor, declared_states(descriptor))
