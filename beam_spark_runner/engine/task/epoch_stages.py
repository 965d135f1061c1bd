"""The stages of a level in an epoch: those that store something, and the watermarks of all."""

import dataclasses
import functools
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from apache_beam.portability.api import beam_fn_api_pb2
from typing_extensions import override

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.ids import StageId, TransformId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.engine.epoch_files import shared_file
from beam_spark_runner.engine.program import Edge, LevelProgram, StageProgram
from beam_spark_runner.engine.rows.coder_errors import StageEpoch
from beam_spark_runner.engine.shared_file import SharedFile
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.opening import open_storing_stage
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.side_windows import looked_up_from_us
from beam_spark_runner.engine.stages.stage import Stage
from beam_spark_runner.engine.task.epoch_watermarks import EpochWatermarks
from beam_spark_runner.engine.task.open_stages import OpenStages
from beam_spark_runner.engine.worker.runtime import JobRuntime
from beam_spark_runner.harness.stored_in_flight import has_left
from beam_spark_runner.harness.waiting import WAITING
from beam_spark_runner.plan.model import Delivery, Stored
from beam_spark_runner.portable.monitoring import drained_timers_counter, lateness_counter
from beam_spark_runner.portable.window_mapping import SideWindow
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import DroppedTimers
from beam_spark_runner.semantics.watermarks import least
from beam_spark_runner.state.locked_records import LockedRecords, SortedRecords
from beam_spark_runner.state.memory import CountValues
from beam_spark_runner.state.remote.keyed_keys import STAGE
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.requests import declared_states, use_maps, value_counter
from beam_spark_runner.state.shards import Shard
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.stored_residuals import total_size

_LOGGER = logging.getLogger(__name__)


class EpochStages(OpenStages):
    """The stages of a level in an epoch. See ``OpenStages`` and ``StagesOfEpoch``.

    Attributes:
        watermarks: the watermarks of all stages.
        was_cut_off, awaits_commit, was_interrupted, awaited_us, views: those of all stages, see
            ``PipelineEnd``.
        table_rows: the files with rows for tables.
        needs: those of each stage that has any, likewise.
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
        self._epoch = reports_pb2.Epoch()
        self._records: SortedRecords | None = None  # of the shard
        self._keyed: Mapping[StageId, KeyedShard] = {}
        self._began_ns = 0
        self._storing_stages: list[Stage] = []
        self._late: defaultdict[TransformId | None, LateElements] = defaultdict(LateElements)
        self._dropped: defaultdict[StageId, DroppedTimers] = defaultdict(DroppedTimers)
        self.watermarks = EpochWatermarks(self._epoch, {})
        self._view_files: dict[int, dict[bytes, tuple[str, ...]]] = defaultdict(dict)
        self.was_cut_off = self.was_interrupted = self.awaits_commit = False
        self.awaited_us: Mapping[int, int] = {}
        self.needs: Mapping[StageId, frozenset[str]] = {}
        self.views: list[reports_pb2.View] = []
        self.table_rows: list[reports_pb2.TableRows] = []

    def begin(
        self,
        epoch: reports_pb2.Epoch,
        watermarks_us: Mapping[int, int],
        shard: Shard | None,
        keyed: Mapping[StageId, KeyedShard],
    ) -> None:
        """Begin an epoch.

        Args:
            epoch: the epoch, as the driver's mark describes it.
            watermarks_us: destination -> input watermark, as the levels upstream have sent it.
            shard: the shard of the level and partition; None: no stage of the level uses one.
            keyed: the keys in the state store, of stages that have them there.
        """
        self.watermarks = EpochWatermarks(epoch, watermarks_us)
        self._epoch = epoch
        self.run = epoch.number
        self._outlet = dataclasses.replace(self._outlet, epoch=epoch.number)
        self._records, self._keyed = shard, keyed
        if shard is not None and self._level.limits.harnesses is not None:
            self._records = LockedRecords(shard)  # another thread answers the harness
        self._began_ns = time.monotonic_ns()
        if epoch.clock_stands:
            self.policy = dataclasses.replace(self.policy, clock_us=epoch.clock_us)
        places = self._level.shards
        paths: set[str] = set()
        for view in epoch.views:
            path = f"{places.deltas}/{view.file}"
            files = self._view_files[view.dest]
            files[view.window] = (*files.get(view.window, ()), path)
            paths.add(path)
        self.job.forget_side_inputs(keep=paths)

    @property
    def epoch(self) -> reports_pb2.Epoch:
        """The epoch, as the driver's mark describes it."""
        return self._epoch

    def spent_us(self) -> int:
        """Return for how long the task has run, in microseconds."""
        return (time.monotonic_ns() - self._began_ns) // 1_000

    def clock_us(self) -> int:
        """Return the processing time by which splittable DoFns wait."""
        return self._epoch.clock_us + (0 if self._epoch.clock_stands else self.spent_us())

    def store_of(self, program: StageProgram) -> StoredState:
        """Return the data of a stage in the shard."""
        assert self._records is not None
        coded_descriptor = program.description.coded_descriptor
        return StoredState(self._records, int(program.stage), _value_counter(coded_descriptor))

    def _stores_of(self, program: StageProgram) -> list[StoredState]:
        """Return all data of a stage; that of its keys is the last."""
        stores = [self.store_of(program)]
        shard = self._keyed.get(program.stage)
        if shard is not None:
            reads_all = (
                program.input.delivery is Delivery.GROUP_BY_KEY or program.input.is_time_sorted
            )
            stores.append(
                StoredState(
                    shard.records,
                    STAGE,
                    _value_counter(program.description.coded_descriptor),
                    lists_holds=True,
                    own_transform=program.in_epochs.keyed_transform,
                    ask=shard.records.ask,
                    # Of a window or elements that are due, all is read; of a timer, maybe nothing.
                    ask_due=shard.records.ask_values if reads_all else None,
                    ask_records=shard.records.ask_records,
                    batches=shard.batches,
                )
            )
        return stores

    def epoch_of(self, program: StageProgram) -> StageEpoch:
        """Return the store of a stage's keys, and its times."""
        before, now = self.watermarks.advance_of(program)
        return StageEpoch(self._stores_of(program)[-1], before, now, self.late_of(program))

    def _least_hold(self, program: StageProgram) -> int | None:
        holds = [store.least_hold() for store in self._stores_of(program)]
        return min((hold_us for hold_us in holds if hold_us is not None), default=None)

    def _next_due(self, program: StageProgram) -> tuple[int | None, int | None]:
        """Return the first due times of a stage in event time and in processing time."""
        events, clocks = zip(*(store.next_due() for store in self._stores_of(program)), strict=True)
        event_us, clock_us = (
            min((time_us for time_us in times if time_us is not None), default=None)
            for times in (events, clocks)
        )
        return event_us, clock_us

    def _is_empty(self, program: StageProgram) -> bool:
        return all(store.is_empty() for store in self._stores_of(program))

    def late_of(self, program: StageProgram) -> LateElements:
        """Return the counter of late elements that a stage drops."""
        return self._late[program.in_epochs.late_counter_step]

    def dropped_of(self, program: StageProgram) -> DroppedTimers | None:
        """Return the counter of timers that a drain drops; None: the pipeline is not drained."""
        return self._dropped[program.stage] if self._epoch.drains else None

    @override
    def side_inputs(self, program: StageProgram) -> Mapping[tuple[str, str], EpochView]:
        return self.lookups(program.in_epochs.views)

    def lookups(self, views: Mapping[tuple[str, str], Edge]) -> Mapping[tuple[str, str], EpochView]:
        """See ``StagesOfEpoch.lookups``."""
        return {
            reader: EpochView(
                edge,
                self.job.job_id,
                self._view_files[edge.dest],
                self.job.side_input,
                self._view_at,
            )
            for reader, edge in views.items()
        }

    def _view_at(self, path: str) -> SharedFile:
        places = self._level.shards
        return shared_file(places, path.rpartition("/")[2])

    def is_expired(self, program: StageProgram, window: Any) -> bool:
        """Whether a window of a stage's input has expired, so that its elements are dropped."""
        return self.watermarks.is_expired(program, window)

    def is_over(self, program: StageProgram, end_us: int) -> bool:
        """See ``StagesOfEpoch``."""
        return self.watermarks.is_over(program, end_us)

    def has_view(self, edge: Edge, window: SideWindow) -> bool:
        """Whether a window of a side input is ready.

        It is, once the watermark has passed its end: without a pane, it is empty. Before that, it
        is ready when a pane has fired; not if the side input is gathered in parts, since panes of
        other parts may be missing.
        """
        if self.watermarks.before_us(edge.dest) > window.end_us:
            return True
        return not edge.is_in_parts and window.name in self._view_files[edge.dest]

    @override
    def finish(self) -> list[bytes]:
        """See ``OpenStages.finish``; before that, run what is due, stage by stage."""
        for program in self._level.stages:
            stores = program.in_epochs.stores
            if stores and (program.stage in self._open or self._is_due(program)):
                self[program.stage].run_due()
        infos = super().finish()
        for stage in self._storing_stages:
            self.was_cut_off |= stage.outcome.was_cut_off
            self.awaits_commit |= stage.outcome.awaits_commit
            self.was_interrupted |= stage.outcome.was_interrupted
            self.views += stage.outcome.views
            self.table_rows += stage.outcome.table_rows
        interrupted = {
            stage.program.stage for stage in self._storing_stages if stage.outcome.was_interrupted
        }
        self.needs = {stage.program.stage: stage.outcome.needs for stage in self._storing_stages}
        self.awaited_us = least(stage.outcome.awaited_us for stage in self._storing_stages)
        self.watermarks.advance(self._level.stages, self._least_hold, self._next_due, interrupted)
        self._look_back()
        return [*infos, *self._late_counters(), *self._dropped_counters()]

    def _look_back(self) -> None:
        """Lower ``looks_up_us``, to keep ended windows of side inputs that may be looked up."""
        looks_up_us = self.watermarks.looks_up_us
        for program in self._level.stages:
            part = program.in_epochs
            for reader, mapping in part.mappings.items():
                dest = int(part.views[reader].dest)
                watermark_us = looks_up_us[dest]
                if mapping.may_look_back and mapping.coded_main and MIN_US < watermark_us < MAX_US:
                    from_us = looked_up_from_us(self.job, mapping, watermark_us, part.lateness_us)
                    looks_up_us[dest] = min(watermark_us, from_us)

    def _late_counters(self) -> Iterator[bytes]:
        for step, late in self._late.items():
            if step is not None and late.dropped:
                yield lateness_counter(step, late.dropped).SerializeToString()

    def _dropped_counters(self) -> Iterator[bytes]:
        """Warn of timers that the drain has dropped, and return their counters."""
        for program in self._level.stages:
            dropped = self._dropped.get(program.stage)
            if dropped is None or not dropped.timers:
                continue
            step, name = next(iter(program.description.step_names.items()))
            _LOGGER.warning(
                "%s: the drain has dropped %s processing-time timers of %s keys, which their "
                "callbacks have set after the end of the input. What these keys have stored until "
                "then is lost. To keep it, stop the pipeline with a savepoint instead",
                name,
                f"{dropped.timers:,}",
                f"{dropped.keys:,}",
            )
            yield drained_timers_counter(step, dropped.timers).SerializeToString()

    def _is_due(self, program: StageProgram) -> bool:
        store, stores = self.store_of(program), program.in_epochs.stores
        if self._epoch.drains and Stored.RESTRICTIONS in stores:
            return not self._is_empty(program)  # restrictions are truncated
        if Stored.UNREADY in stores and store.timers(WAITING, b""):
            return True
        if Stored.KEYS in stores and has_left(store):
            return True
        event_us, clock_us = self._next_due(program)
        now = self.epoch_of(program).now
        until_us = self.clock_us() if Stored.RESTRICTIONS in stores else now.clock_us
        return (event_us is not None and event_us <= now.watermark_us) or (
            clock_us is not None and clock_us <= until_us
        )

    def finished_inputs(self) -> list[int]:
        """Return the input destinations of stages that get no more input and store nothing."""
        return [
            dest
            for program in self._level.stages
            if self.watermarks.inputs_us[dest := int(program.input.dest)] == MAX_US
            and not (program.in_epochs.stores and not self._is_empty(program))
        ]

    def restrictions(self) -> Mapping[str, reports_pb2.Residuals]:
        """Return number, hold and size of stored restrictions, by the id of the splittable DoFn."""
        residuals = {}
        for program in self._level.stages:
            if Stored.RESTRICTIONS in program.in_epochs.stores:
                store = self.store_of(program)
                hold_us = store.least_hold()
                if hold_us is not None:
                    (step, *_) = program.description.step_names
                    residuals[str(step)] = reports_pb2.Residuals(
                        count=store.count_holders(), hold_us=hold_us, size=total_size(store)
                    )
        return residuals

    def statuses(self) -> Mapping[int, reports_pb2.StageStatus]:
        """Return the status of each stage by its input destination; ``finish`` has run."""
        outcomes = {stage.program.stage: stage.outcome for stage in self._storing_stages}
        nothing = Outcome()
        return {
            dest: reports_pb2.StageStatus(
                output_us=self.watermarks.sent_us[dest],
                hold_us=self.watermarks.holds_us.get(dest),
                waiting=outcome.waiting,
                left=outcome.left,
            )
            for program in self._level.stages
            for dest in (int(program.input.dest),)
            for outcome in (outcomes.get(program.stage, nothing),)
        }

    def next_due(self) -> tuple[int | None, int | None]:
        """Return when the next timer of the level is due: event time, processing time (both us)."""
        due = [
            self._next_due(program) for program in self._level.stages if program.in_epochs.stores
        ]
        events = [event_us for event_us, _ in due if event_us is not None]
        clocks = [clock_us for _, clock_us in due if clock_us is not None]
        return min(events, default=None), min(clocks, default=None)

    @override
    def _make_stage(self, program: StageProgram) -> Stage:
        part = program.in_epochs
        if not (part.stores or part.is_for_table):
            return super()._make_stage(program)
        stage = open_storing_stage(StageContext(self._level, program, self._outlet, self))
        self._storing_stages.append(stage)
        return stage


@functools.lru_cache(256)
def _value_counter(coded_descriptor: bytes) -> CountValues:
    descriptor = beam_fn_api_pb2.ProcessBundleDescriptor.FromString(coded_descriptor)
    use_maps(descriptor)
    return value_counter(descriptor, declared_states(descriptor))
