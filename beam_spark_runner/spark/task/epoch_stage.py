"""The contract of stages of which something outlives the epoch, in a task of it."""

import abc
from collections.abc import Sequence
from typing import Any, Protocol, cast

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.portable.window_mapping import SideWindow
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.spark.program import Edge, StageProgram
from beam_spark_runner.spark.rows.reading import StageEpoch
from beam_spark_runner.spark.task.open_stage import OpenStage, StagesOfTask
from beam_spark_runner.state.store import StoredState


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

    def is_over(self, program: StageProgram, end_us: int) -> bool:
        """Whether a stage's input has passed a window that ends at that time, by its lateness."""
        ...

    def has_view(self, edge: Edge, window: SideWindow) -> bool:
        """Whether the content of a side input is known for a window of its own."""
        ...


class EpochStage(OpenStage):
    """A stage that has something in the shard.

    In an epoch it is opened by its first element, or because something of it is due. Then
    ``begin`` is called, ``read`` and ``push_from_within`` for each run of elements, ``run_due``
    once after the last of them, and ``finish``.

    Attributes:
        was_cut_off: its source had more than the epoch's budget allowed.
        awaits_views: elements wait for side inputs.
        awaits_commit: stable input is stored, for the epoch after this one.
        was_interrupted: timers or panes that are due have not fired.
        views: the windows of a side input that have new content.
        waiting: set if elements wait for side inputs.

    All of them are to be read once it has finished; a kind of stage sets those that concern it.
    """

    was_cut_off = awaits_views = awaits_commit = was_interrupted = False
    views: Sequence[reports_pb2.View] = ()
    waiting: reports_pb2.Waiting | None = None

    @property
    def _stages(self) -> StagesOfEpoch:
        return cast(StagesOfEpoch, self._others)

    @abc.abstractmethod
    def run_due(self) -> None:
        """Do what is due without further elements."""
