"""The restrictions of a splittable DoFn in batch: a task may leave some to a later Spark job."""

from collections.abc import Callable

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated.backchannel_pb2 import Deferred
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.program import BatchPart
from beam_spark_runner.engine.rows.writers import ResidualWriter
from beam_spark_runner.engine.stages.bundles_in_turn import BundlesInTurn
from beam_spark_runner.engine.stages.charging import charged_to
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.siblings import StagesOfTask
from beam_spark_runner.harness.bundle import BundleResult
from beam_spark_runner.harness.sdf.splittable import Budget, SplittableInput
from beam_spark_runner.scheduling.attempts import Residuals

_MAX_PIECES = 16  # of a restriction in one round; on a larger cluster it takes another round


class Rounds(BundlesInTurn):
    """Processes restrictions until none is left, or the round ends: then it emits the rest.

    Args:
        context: the stage.
        now_us: returns processing time, microseconds since the epoch.

    Attributes:
        step: the id of the splittable DoFn.
        residuals: the restrictions that are left to a later Spark job.
    """

    input: SplittableInput

    def __init__(self, context: StageContext[StagesOfTask], now_us: Callable[[], int]) -> None:
        self._context = context
        self._now_us = now_us
        self._residual_writer: ResidualWriter | None = None
        self.step: TransformId = next(iter(context.program.description.step_names))
        self.residuals = Residuals(0, MAX_US)
        super().__init__(self._make_input)

    def _make_input(self, count: Callable[[BundleResult], None]) -> SplittableInput:
        context = self._context
        batch = context.level.batch or BatchPart()
        budget_us = batch.round_budget_us
        return SplittableInput(
            start_bundle=context.start_bundle,
            on_completed=count,
            input_coder=context.input_coder,
            collection=context.program.collection,
            now_us=self._now_us,
            budget=None
            if budget_us is None
            else Budget(
                duration_us=budget_us,
                pieces=min(context.level.partitions, _MAX_PIECES),
                leave=self._leave_residual,
                leaves_much=batch.leaves_much,
                longest_us=batch.longest_round_us,
            ),
        )

    def deferred(self) -> Deferred:
        """Return how many restrictions wait in this task, and the least of their holds."""
        return Deferred(count=self.input.pending(), hold_us=self.input.watermark_hold_us())

    def _leave_residual(self, element: WindowedValue, due_us: int, hold_us: int) -> None:
        context = self._context
        if self._residual_writer is None:
            self._residual_writer = ResidualWriter(
                context.program.input, context.input_coder, context.outlet
            )
            context.outputs.add_writer(self._residual_writer)
        self._residual_writer.accept_residual(element, due_us)
        self.residuals = Residuals(self.residuals.count + 1, min(self.residuals.hold_us, hold_us))

    def run_due(self) -> bool:
        """See ``splittable.Deferring``."""
        with charged_to(self._context.program.name):
            return self.input.run_due()

    def next_due_us(self) -> int | None:
        """See ``splittable.Deferring``."""
        return self.input.next_due_us()
