"""What the parts of a stage have in common: its program, its harness, its outputs, its task."""

import dataclasses
import logging
import time
from typing import Generic, TypeVar

from apache_beam.coders import WindowedValueCoder

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.engine.program import LevelProgram, StageProgram
from beam_spark_runner.engine.rows.writing import Outlet
from beam_spark_runner.engine.stages.siblings import StagesOfTask
from beam_spark_runner.engine.stages.stage_outputs import Outputs
from beam_spark_runner.harness.bundle import Bundle
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.semantics.timer_loops import MAX_SET_AGAIN, TimerLoops
from beam_spark_runner.state.policy import KeyPolicy

_LOGGER = logging.getLogger(__name__)

Task = TypeVar("Task", bound=StagesOfTask, covariant=True)


class StageContext(Generic[Task]):
    """What the parts of a stage have in common.

    Args:
        level: the program of the task.
        program: the program of the stage.
        outlet: takes the rows that the stage emits.
        task: the stages of the task; of an epoch, if the stage stores data in the shard.
    """

    def __init__(
        self, level: LevelProgram, program: StageProgram, outlet: Outlet, task: Task
    ) -> None:
        self.level = level
        self.program = program
        self.outlet = outlet
        self.task = task
        self.job = task.job
        self._side_inputs = task.side_inputs(program)
        self._harness = task.job.stage(
            program, frozenset(side_input.cache_id for side_input in self._side_inputs.values())
        )
        self.outputs = Outputs(program, self._harness.output_coders, outlet, task)

    @property
    def input_coder(self) -> WindowedValueCoder:
        """The coder of the stage's elements."""
        return self._harness.input_coder

    @property
    def gets_panes(self) -> bool:
        """Whether the elements are panes, which are never late: their windows may have ended."""
        return self.program.input.delivery is Delivery.GROUP_BY_KEY

    def start_bundle(self, policy: KeyPolicy | None = None) -> Bundle:
        """Begin a bundle of the stage.

        Args:
            policy: what happens to keys; None: the policy of the task.

        Raises:
            BundleFailedError: user code raised in ``setup`` or ``start_bundle``.
        """
        policy = policy or self.task.policy
        if self.program.input.is_keyed:
            loops = TimerLoops(
                lambda: time.monotonic_ns() // 1_000, self._warn_of_timer_loop, time.sleep
            )
            policy = dataclasses.replace(policy, loops=loops)
        try:
            return self._harness.start_bundle(self.outputs.receivers, self._side_inputs, policy)
        except BundleFailedError:
            self.job.discard(self.program.stage)
            raise

    def _warn_of_timer_loop(self, family: str) -> None:
        step = next(iter(self.program.description.step_names.values()), self.program.name)
        _LOGGER.warning(
            "%s: one key has set the timer %s more than %s times since its input ended, and the "
            "timer still fires. An event-time timer that always sets itself again fires until "
            "its window ends, and the global window never ends; a processing-time timer fires "
            "forever. So the epoch or pipeline does not end. Have its callback stop when there is "
            "nothing left to do, or use windows and an event-time timer",
            step,
            family,
            f"{MAX_SET_AGAIN:,}",
        )
