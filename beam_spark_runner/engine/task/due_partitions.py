"""Which stages of a task have a partition to process, with or without elements."""

from collections.abc import Container

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.engine.program import LevelProgram, StageProgram
from beam_spark_runner.plan.model import Delivery


class Partitions:
    """Finds the stages that a task has a partition for.

    A level without an exchange has separate tasks for each of its sources. An empty partition
    counts, too: a stage that takes a partition as a whole has a result for it.

    Marks of materialised rows name the destinations of which the rows are a partition, also those
    that another Spark job reads. This task ignores the latter, or that job would get them twice.

    Attributes:
        arrived: destinations of which the task got a partition; to be set before any call.
        sent: destinations of which this task's rows are a partition, as far as ``has_one_for`` was
            called.

    Args:
        level: the program of the task.
    """

    def __init__(self, level: LevelProgram) -> None:
        self._is_round = level.batch is not None and level.batch.is_round
        self._hosted = frozenset(int(program.input.dest) for program in level.stages)
        self._passed_on = level.passed_on
        self._feeders: dict[StageId, list[StageId]] = {}
        for program in level.stages:
            for stages in program.local.values():
                for stage in stages:
                    self._feeders.setdefault(stage, []).append(program.stage)
        self._stages_with_one: set[StageId] = set()
        self._arrived: frozenset[int] = frozenset()
        self.sent: frozenset[int] = frozenset()

    @property
    def arrived(self) -> frozenset[int]:
        """See the class."""
        return self._arrived

    @arrived.setter
    def arrived(self, destinations: frozenset[int]) -> None:
        self._arrived = destinations
        self.sent = destinations & self._passed_on

    def pass_on(self, destinations: frozenset[int]) -> None:
        """Note that the task passes all its input on to a later Spark job."""
        self.sent = destinations & (self._hosted | self._passed_on)

    def has_one_for(self, program: StageProgram, with_elements: Container[StageId]) -> bool:
        """Whether the task has a partition for a stage. To be called for producers first.

        Args:
            program: the program of the stage.
            with_elements: stages that have got elements.
        """
        has_one = (
            program.stage in with_elements
            or int(program.input.dest) in self._arrived
            or (program.input.delivery is not Delivery.POINTWISE and not self._is_round)
            or not self._stages_with_one.isdisjoint(self._feeders.get(program.stage, ()))
        )
        if has_one:
            self._stages_with_one.add(program.stage)
            self.sent |= {
                int(edge.dest)
                for edges in program.outputs.values()
                for edge in edges
                if edge.is_partition
            }
        return has_one
