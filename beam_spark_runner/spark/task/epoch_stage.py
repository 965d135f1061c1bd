"""A stage that a task of an epoch runs, where something of it outlives the epoch."""

import functools
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.harness.beam.side_windows import side_window_of
from beam_spark_runner.harness.bundle import Bundle, BundleInput, StoringInput
from beam_spark_runner.harness.due import fire_due
from beam_spark_runner.harness.sdf.epoch_input import EpochRestrictions
from beam_spark_runner.harness.waiting import WaitingElements
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.recovery.sweep import view_name
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import expiry_us
from beam_spark_runner.spark.program import Edge, StageProgram
from beam_spark_runner.spark.rows.cursor import RowCursor
from beam_spark_runner.spark.rows.group_reader import GroupReader
from beam_spark_runner.spark.rows.keyed_reader import KeyedReader
from beam_spark_runner.spark.rows.readers import ElementReader, reader_for
from beam_spark_runner.spark.rows.reading import StageEpoch
from beam_spark_runner.spark.rows.view_writer import grouped_coder
from beam_spark_runner.spark.side_inputs.views import PanesOfView
from beam_spark_runner.spark.task.accumulator_merger import AccumulatorMerger
from beam_spark_runner.spark.task.open_stage import (
    JoinedInput,
    NextStage,
    OpenStage,
    StagesOfTask,
    charged_to,
)
from beam_spark_runner.spark.task.splittable_stage import OpenSplittable
from beam_spark_runner.state.policy import KeyPolicy
from beam_spark_runner.state.shards import FolderOfDeltas
from beam_spark_runner.state.store import StoredState

_IDLE_US = 100_000


class StagesOfEpoch(StagesOfTask, Protocol):
    """The epoch of a task, for its stages."""

    @property
    def epoch(self) -> reports_pb2.Epoch:
        """What the task began with."""
        ...

    def spent_us(self) -> int:
        """Return for how long the task has run, in microseconds."""
        ...

    def clock_us(self) -> int:
        """Return the processing time by which splittable DoFns wait."""
        ...

    def store_of(self, program: StageProgram) -> StoredState:
        """Return what a stage has in the shard."""
        ...

    def epoch_of(self, program: StageProgram) -> StageEpoch:
        """Return what a stage that stores keys begins with."""
        ...

    def late_of(self, program: StageProgram) -> LateElements:
        """Return what counts the elements that a stage drops since they come too late."""
        ...

    def is_expired(self, program: StageProgram, window: Any) -> bool:
        """Whether a window of a stage's input is over, so that its elements are too late."""
        ...

    def has_view(self, edge: Edge, window: Any) -> bool:
        """Whether the content of a side input is known for a window of its own."""
        ...


def stores_keys(program: StageProgram) -> bool:
    """Whether a stage has state, timers, or windows that wait for their trigger."""
    return program.input.is_keyed or program.input.delivery is Delivery.GROUP_BY_KEY


def uses_shard(program: StageProgram) -> bool:
    """Whether a stage of a streaming pipeline has something in the shard."""
    return (
        stores_keys(program)
        or program.description.is_splittable
        or program.input.delivery is Delivery.SIDE_INPUT
        or bool(program.views)
        or program.is_stable
    )


class _EpochStage(OpenStage):
    """Lets elements wait in front of its bundle, if it has side inputs.

    Attributes:
        awaits_views: some wait for a later epoch. To be read when it has finished.
        was_interrupted: timers that are due have not fired.
    """

    awaits_views = False
    was_interrupted = False

    def _wait_in_front(self, stages: StagesOfEpoch) -> None:
        """Set ``_waiting``; ``_joined`` is set."""
        self._waiting: WaitingElements | None = None
        # See ``graph.passes.await_side_inputs``.
        if not self.program.views or self.program.input.is_keyed:
            return
        self._waiting = WaitingElements(
            stages.store_of(self.program),
            self._harness.input_coder,
            is_ready=_readiness(stages, self.program.views.values()),
            is_expired=functools.partial(stages.is_expired, self.program),
            late=stages.late_of(self.program),
        )

    def begin(self) -> None:
        """Push what has waited and is ready. See ``OpenStage.begin``."""
        if self._waiting is not None:
            with charged_to(self.program.name):
                self._waiting.release(InputFromWithin(self._bundle, self._joined))

    def _input(self) -> BundleInput:
        """Return what a reader pushes into."""
        if self._waiting is None:
            return self._joined
        return _WaitingInput(self._waiting, self._joined)

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """See ``OpenStage.push_from_within``."""
        if self._waiting is None:
            self._bundle.push_from_within(values, origins)
        else:
            self._waiting.pass_on(self._bundle.push_from_within, values, origins)

    def run_due(self) -> None:
        """Do what is due without further elements."""

    def finish(self) -> Iterable[bytes]:
        """See ``OpenStage.finish``."""
        if self._waiting is not None:
            self.awaits_views = self._waiting.save()
        return super().finish()


class WaitingStage(_EpochStage):
    """A stage without keys that has side inputs."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        self._bundle = self._start_bundle()
        self._joined = JoinedInput(self._bundle, self._following)
        self._wait_in_front(cast(StagesOfEpoch, self._others))
        self._reader = reader_for(
            self.program.input, self._harness.input_coder, self._input(), self._logs
        )


class StoringStage(_EpochStage):
    """A stage whose keys outlive the epoch."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        stages = cast(StagesOfEpoch, self._others)
        self._merger: AccumulatorMerger | None = None
        epoch = stages.epoch_of(self.program)
        if self.program.merger is not None:
            self._merger = AccumulatorMerger(self._job, self.program.merger)
            epoch = epoch._replace(merge=self._merge)
        self._epoch = epoch
        self._interruption: Interruption | None = None
        batch = self._level.user_timer_batch
        if batch is not None or not self.program.input.is_keyed:
            self._interruption = Interruption(stages.spent_us, stages.epoch.budget_us, batch or 1)
        clock_us = epoch.before.clock_us if stages.epoch.clock_stands else None
        self._bundle = self._start_bundle(
            KeyPolicy(
                epoch.now,
                epoch.store,
                epoch.before.watermark_us,
                clock_us=clock_us,
                interruption=self._interruption,
                late=epoch.late,
            )
        )
        if self.program.input.is_keyed:
            bundle = cast(StoringInput, self._bundle)
            self._joined = JoinedStoringInput(bundle, self._bundle, self._following)
        else:
            self._joined = JoinedInput(self._bundle, self._following)
        self._wait_in_front(stages)
        self._reader = reader_for(
            self.program.input, self._harness.input_coder, self._input(), self._logs, epoch
        )

    def run_due(self) -> None:
        """Fire all timers and panes that are due, key by key."""
        reader = self._reader
        assert isinstance(reader, GroupReader | KeyedReader)
        with charged_to(self.program.name):
            self._bundle.enter()
            is_group = isinstance(reader, GroupReader)
            epoch = self._epoch
            fire_due(epoch.store, epoch.now, reader.fire, self._interruption, one_by_one=is_group)
            if isinstance(reader, GroupReader):
                reader.finish_epoch()

    def _merge(self, groups: Sequence[WindowedValue]) -> Sequence[Any]:
        assert self._merger is not None
        try:
            return self._merger.merged(groups)
        finally:
            self._bundle.enter()

    def finish(self) -> Iterable[bytes]:
        """See ``OpenStage.finish``."""
        infos = super().finish()
        if self._interruption is not None:
            self.was_interrupted = self._interruption.was_interrupted
        return infos if self._merger is None else [*infos, *self._merger.infos]


class InputFromWithin:
    """See ``BundleInput``. A stage may be opened while another bundle runs."""

    def __init__(self, bundle: Bundle, joined: JoinedInput) -> None:
        self.push = bundle.push_from_within
        self.flush = joined.flush
        self.advance_key = joined.advance_key


class _WaitingInput:
    """See ``BundleInput``."""

    def __init__(self, waiting: WaitingElements, bundle: BundleInput) -> None:
        self.push = functools.partial(waiting.pass_on, bundle.push)
        self.flush = bundle.flush
        self.advance_key = bundle.advance_key


class JoinedStoringInput(JoinedInput):
    """See ``StoringInput``."""

    def __init__(
        self, keys: StoringInput, bundle: Bundle, following: "Sequence[NextStage]"
    ) -> None:
        super().__init__(bundle, following)
        self.begin_key = keys.begin_key
        self.advance_key_until = keys.advance_key_until


class SplittableInEpochs(OpenSplittable):
    """Goes on until the budget of the epoch is spent; what is left is stored.

    If it asks for stable input, it begins before anything new comes.
    """

    _input: EpochRestrictions

    def _open_restrictions(self, now_us: Callable[[], int]) -> None:
        stages = cast(StagesOfEpoch, self._others)
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

    def begin(self) -> None:
        """See ``OpenStage.begin``."""
        if self.program.is_stable:
            self._run()

    @property
    def was_cut_off(self) -> bool:
        """See ``EpochRestrictions``."""
        return self._input.was_cut_off

    def run_due(self) -> None:
        """See ``EpochRestrictions.run_due``."""
        if not self.program.is_stable:
            self._run()

    def _run(self) -> None:
        with charged_to(self.program.name):
            self._input.run_due()


class ViewStage(OpenStage):
    """Gathers a side input: stores its windows until they fire, and writes the panes that do.

    Attributes:
        views: the windows that have new content, once it has finished.
    """

    def _open_input(self, now_us: Callable[[], int]) -> None:
        self.views: list[reports_pb2.View] = []
        stages = cast(StagesOfEpoch, self._others)
        self._number = stages.epoch.number
        self._epoch = stages.epoch_of(self.program)
        self._panes = PanesOfView(self._harness.input_coder)
        self._reader: GroupReader = GroupReader(
            self.program.input,
            grouped_coder(self._harness.input_coder),
            self._panes,
            self._logs,
            self._epoch,
        )

    def read(self, cursor: RowCursor) -> None:
        """See ``OpenStage.read``."""
        with charged_to(self.program.name):
            self._reader.read(cursor)

    def run_due(self) -> None:
        """Fire the panes that are due."""
        with charged_to(self.program.name):
            fire_due(self._epoch.store, self._epoch.now, self._reader.fire)

    def finish(self) -> Iterable[bytes]:
        """Write what has fired."""
        windows, places, edge = self._panes.windows(), self._level.shards, self.program.input
        if windows:
            assert places is not None
            name = view_name(places.lineage, self._number, int(edge.dest), uuid.uuid4().hex)
            folder = FolderOfDeltas(Path(places.deltas))
            with charged_to(self.program.name):
                self._panes.write(
                    edge,
                    functools.partial(folder.put, name),
                    most_element_bytes=self._level.max_element_bytes,
                )
            self.views = [
                reports_pb2.View(
                    dest=edge.dest,
                    window=coded,
                    file=name,
                    expires_us=expiry_us(end_us, self.program.lateness_us),
                )
                for coded, end_us in windows
            ]
        return ()

    def progress(self) -> Sequence[bytes]:
        """See ``OpenStage.progress``: no step runs here."""
        return ()

    def abort(self) -> None:
        """See ``OpenStage.abort``: there is no bundle."""


def _readiness(stages: StagesOfEpoch, edges: Iterable[Edge]) -> Callable[[Any], bool]:
    mappings = [(edge, side_window_of(edge.coded_windowing)) for edge in edges]

    def is_ready(window: Any) -> bool:
        return all(stages.has_view(edge, to_side(window)) for edge, to_side in mappings)

    return is_ready
