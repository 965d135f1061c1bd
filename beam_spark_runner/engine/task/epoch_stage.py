"""The contract of stages that store data in the shard from epoch to epoch."""

import abc
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, cast

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.program import Edge, StageProgram
from beam_spark_runner.engine.rows.reading import StageEpoch
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.engine.task.open_stage import OpenStage, StagesOfTask
from beam_spark_runner.portable.window_mapping import SideWindow
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import DroppedTimers
from beam_spark_runner.state.store import StoredState


class StagesOfEpoch(StagesOfTask, Protocol):
    """The other stages of a task, and its epoch."""

    @property
    def epoch(self) -> reports_pb2.Epoch:
        """The epoch, as the driver's mark describes it."""
        ...

    def spent_us(self) -> int:
        """Return for how long the task has run, in microseconds."""
        ...

    def clock_us(self) -> int:
        """Return the processing time by which splittable DoFns wait."""
        ...

    def store_of(self, program: StageProgram) -> StoredState:
        """Return the data of a stage in the shard."""
        ...

    def epoch_of(self, program: StageProgram) -> StageEpoch:
        """Return the store and the times of a stage that stores keys."""
        ...

    def late_of(self, program: StageProgram) -> LateElements:
        """Return the counter of late elements that a stage drops."""
        ...

    def dropped_of(self, program: StageProgram) -> DroppedTimers | None:
        """Return the counter of timers that a drain drops; None: the pipeline is not drained."""
        ...

    def is_expired(self, program: StageProgram, window: Any) -> bool:
        """Whether a window of a stage's input has expired, so that its elements are dropped."""
        ...

    def is_over(self, program: StageProgram, end_us: int) -> bool:
        """Whether a window that ends at an event time has expired for a stage's input."""
        ...

    def lookups(self, views: Mapping[tuple[str, str], Edge]) -> Mapping[tuple[str, str], EpochView]:
        """Return the lookups of side inputs: see ``StageInEpochs.views``."""
        ...

    def has_view(self, edge: Edge, window: SideWindow) -> bool:
        """Whether a window of a side input is ready."""
        ...


class EpochStage(OpenStage):
    """A stage that stores data in the shard.

    In an epoch it is opened by its first element, or because something in its store is due. Then
    ``begin`` is called, ``read`` and ``push_from_within`` for each run of elements, ``run_due``
    once after the last of them, and ``finish``.

    Attributes:
        was_cut_off: its source had more than the epoch's budget allowed.
        awaited_us: the earliest end of the windows of side inputs that elements wait for, by
            destination that gathers the side input; empty: no elements wait.
        awaits_commit: stable input is stored, for the next epoch.
        was_interrupted: timers or panes that are due have not fired.
        views: the windows of a side input that have new content.
        waiting: describes elements that wait for side inputs; None: there are none.

    They are valid once ``finish`` has run; each kind of stage sets those that concern it.
    """

    was_cut_off = awaits_commit = was_interrupted = False
    awaited_us: Mapping[int, int] = MappingProxyType({})
    views: Sequence[reports_pb2.View] = ()
    waiting: reports_pb2.Waiting | None = None

    @property
    def _stages(self) -> StagesOfEpoch:
        return cast(StagesOfEpoch, self._others)

    @abc.abstractmethod
    def run_due(self) -> None:
        """Process what is due in the store, once all elements have been read."""
