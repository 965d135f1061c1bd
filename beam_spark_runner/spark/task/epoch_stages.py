"""The stages of a level in an epoch: those that store keys, and the watermarks of all."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import pyarrow as pa
from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.harness.bundle import Bundle, StoringInput
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.descriptor import StageDescription
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.spark.program import LevelProgram, StageProgram
from beam_spark_runner.spark.rows.group_reader import GroupReader
from beam_spark_runner.spark.rows.keyed_reader import KeyedReader
from beam_spark_runner.spark.rows.readers import reader_for
from beam_spark_runner.spark.rows.reading import StageEpoch
from beam_spark_runner.spark.task.open_stages import (
    JoinedInput,
    NextStage,
    OpenStage,
    OpenStages,
    charged_to,
)
from beam_spark_runner.spark.task.worker_runtime import JobRuntime
from beam_spark_runner.state.memory import CountValues
from beam_spark_runner.state.policy import KeyPolicy
from beam_spark_runner.state.requests import declared_states, value_counter
from beam_spark_runner.state.shards import Shard
from beam_spark_runner.state.store import StoredState


class EpochStages(OpenStages):
    """See ``OpenStages``.

    Watermarks are microseconds of event time. All stages of the level have one, also those that
    get no elements in this epoch.
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
        self._clock_us = 0
        self._shard: Shard | None = None
        self.inputs_us: dict[int, int] = {}
        self.outputs_us: dict[int, int] = {}

    def begin(
        self, epoch: reports_pb2.Epoch, watermarks_us: Mapping[int, int], shard: Shard | None
    ) -> None:
        """Begin an epoch.

        Args:
            epoch: which.
            watermarks_us: by destination: what the levels before have sent.
            shard: of the level and partition; None: no stage of the level stores keys.
        """
        self._before = dict(epoch.watermarks_us)
        self._watermarks = dict(watermarks_us)
        self._clock_us = epoch.clock_us
        self._shard = shard

    def epoch_of(self, program: StageProgram) -> StageEpoch:
        """Return what a stage that stores keys begins with."""
        assert self._shard is not None
        dest = int(program.input.dest)
        before_us = self._before.get(dest, MIN_US)
        now_us = max(before_us, self._watermarks.get(dest, MAX_US))
        # At the end of all input nothing waits for a clock.
        clock_us = MAX_US if now_us == MAX_US else self._clock_us
        store = StoredState(self._shard, int(program.stage), _value_counter(program.description))
        return StageEpoch(store, Instant(before_us, self._clock_us), Instant(now_us, clock_us))

    def finish(self) -> list[bytes]:
        """See ``OpenStages.finish``; before that, fire what is due, stage by stage."""
        for program in self._level.stages:
            if stores_keys(program):
                stage = self[program.stage]
                assert isinstance(stage, _StoringStage)
                stage.fire_due()
        infos = super().finish()
        self._advance_watermarks()
        return infos

    def _advance_watermarks(self) -> None:
        """Compute ``inputs_us`` of the stages, and ``outputs_us`` of what they feed elsewhere."""
        here = {program.stage: int(program.input.dest) for program in self._level.stages}
        inputs = dict(self._watermarks)
        for program in self._level.stages:  # producers stand before consumers
            dest = int(program.input.dest)
            output_us = max(inputs.get(dest, MAX_US), self._before.get(dest, MIN_US))
            self.inputs_us[dest] = output_us
            if stores_keys(program):
                hold_us = self.epoch_of(program).store.least_hold()
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
            self.epoch_of(program).store.next_due()
            for program in self._level.stages
            if stores_keys(program)
        ]
        events = [event_us for event_us, _ in due if event_us is not None]
        clocks = [clock_us for _, clock_us in due if clock_us is not None]
        return min(events, default=None), min(clocks, default=None)

    def _make(self, program: StageProgram) -> OpenStage:
        if stores_keys(program):
            return _StoringStage(self._level, program, self._outlet, self, self._now_us)
        return super()._make(program)


class _StoringStage(OpenStage):
    """A stage whose keys outlive the epoch."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        epoch = cast(EpochStages, self._others).epoch_of(self.program)
        self._epoch = epoch
        self._bundle = self._start_bundle(
            KeyPolicy(
                epoch.now, epoch.store, epoch.before.watermark_us, clock_us=epoch.before.clock_us
            )
        )
        if self.program.input.is_keyed:
            bundle = cast(StoringInput, self._bundle)
            self._joined = _JoinedStoringInput(bundle, self._bundle, self._following)
        else:
            self._joined = JoinedInput(self._bundle, self._following)
        self._reader = reader_for(
            self.program.input, self._harness.input_coder, self._joined, self._logs, epoch
        )

    def fire_due(self) -> None:
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


def stores_keys(program: StageProgram) -> bool:
    """Whether a stage of a streaming pipeline has something in the shard."""
    return program.input.is_keyed or program.input.delivery is Delivery.GROUP_BY_KEY


def _lower(watermarks: dict[int, int], dest: int, watermark_us: int) -> None:
    watermarks[dest] = min(watermarks.get(dest, watermark_us), watermark_us)


def _value_counter(description: StageDescription) -> CountValues:
    return _value_counter_of(description.coded_descriptor)


@functools.lru_cache(256)
def _value_counter_of(coded_descriptor: bytes) -> CountValues:
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(coded_descriptor)
    return value_counter(descriptor, declared_states(descriptor))
