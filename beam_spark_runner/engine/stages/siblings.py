"""What a stage knows of the other stages of its task, and of the task's epoch."""

from collections.abc import Mapping
from typing import Any, Protocol

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.engine.program import Edge, StageProgram
from beam_spark_runner.engine.rows.coder_errors import StageEpoch
from beam_spark_runner.engine.side_inputs.lookup import GatheredRows
from beam_spark_runner.engine.side_inputs.views import EpochView
from beam_spark_runner.engine.worker.runtime import JobRuntime
from beam_spark_runner.harness.values.spilled_group import ValueLogs
from beam_spark_runner.portable.window_mapping import SideWindow
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.timers import DroppedTimers
from beam_spark_runner.state.policy import KeyPolicy
from beam_spark_runner.state.store import StoredState


class StageDownstream(Protocol):
    """A stage that gets elements from the bundle of another stage of the task."""

    def push_from_within(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process elements that another stage of the task emits while its bundle runs."""
        ...

    def flush(self) -> None:
        """Process elements that are buffered, in this stage and downstream."""
        ...


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

    def __getitem__(self, id_: StageId) -> StageDownstream:
        """Return a stage, and open it if that has not been done."""
        ...

    def side_inputs(
        self, program: StageProgram
    ) -> Mapping[tuple[str, str], GatheredRows | EpochView]:
        """Return the side inputs of a stage: (transform id, local name) -> lookup."""
        ...


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
