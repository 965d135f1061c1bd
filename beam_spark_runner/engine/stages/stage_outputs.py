"""Where the output of a stage goes: into rows, and to other stages of the task."""

from collections.abc import Callable, Mapping
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import PCollectionId, StageId
from beam_spark_runner.engine.program import StageProgram
from beam_spark_runner.engine.rows.writers import writer_for
from beam_spark_runner.engine.rows.writing import Outlet, Writer
from beam_spark_runner.engine.stages.siblings import StagesOfTask
from beam_spark_runner.harness.bundle import Receiver
from beam_spark_runner.harness.values.constants import Kind, may_be_shared


class Outputs:
    """The receivers of a stage's output collections.

    Args:
        program: the program of the stage.
        coders: the coder of each output collection.
        outlet: takes the rows.
        stages_of_task: the stages of the task.

    Attributes:
        receivers: one for each output collection.
    """

    def __init__(
        self,
        program: StageProgram,
        coders: Mapping[PCollectionId, WindowedValueCoder],
        outlet: Outlet,
        stages_of_task: StagesOfTask,
    ) -> None:
        self.receivers: dict[PCollectionId, Receiver] = {}
        self._writers: list[Writer] = []
        self._following: list[_NextStage] = []
        for collection, coder in coders.items():
            targets: list[Receiver] = []
            for edge in program.outputs.get(collection, ()):
                writer = writer_for(edge, coder, outlet)
                self._writers.append(writer)
                targets.append(writer)
            for stage in program.local.get(collection, ()):
                self._following.append(_NextStage(stage, stages_of_task))
                targets.append(self._following[-1])
            self.receivers[collection] = targets[0] if len(targets) == 1 else _FanOut(targets)

    def add_writer(self, writer: Writer) -> None:
        """Have one more writer write its last rows at the end of the stage."""
        self._writers.append(writer)

    def flush_stages(self) -> None:
        """Process elements that the stages downstream in this task have buffered."""
        for stage in self._following:
            stage.flush()

    def flush_writers(self) -> None:
        """Write the last rows."""
        for writer in self._writers:
            writer.flush()


class _NextStage:
    """Opens the stage downstream of a pointwise edge with its first element."""

    def __init__(self, stage: StageId, stages: StagesOfTask) -> None:
        self._stage = stage
        self._stages = stages
        self._push: Callable[[list[Any], list[WindowedValue]], None] | None = None

    def accept(self, windowed_value: WindowedValue) -> None:
        self.accept_chunk([windowed_value.value], [windowed_value])

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        if self._push is None:
            self._push = self._stages[self._stage].push_from_within
        self._push(values, origins)

    def flush(self) -> None:
        if self._push is not None:
            self._stages[self._stage].flush()


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
