"""The restrictions of a splittable DoFn in an epoch: they are in the shard."""

from collections.abc import Callable, Sequence

from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.engine.stages.bundles_in_turn import BundlesInTurn
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.gates.gate import Gate
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.siblings import StagesOfEpoch
from beam_spark_runner.engine.worker.helper_bundle import run_helper
from beam_spark_runner.harness.bundle import BundleResult
from beam_spark_runner.harness.sdf.epoch_input import EpochRestrictions

_IDLE_US = 100_000


class Restrictions(Gate):
    """Stores restrictions, and processes those that are due until the epoch's budget is spent.

    Args:
        context: the stage.

    Attributes:
        operator: runs the bundles. Its input stores what is pushed.
    """

    def __init__(self, context: StageContext[StagesOfEpoch]) -> None:
        self._context = context
        self._truncating_infos: list[bytes] = []  # monitoring infos
        self.operator = BundlesInTurn(self._make_input)

    def _make_input(self, count: Callable[[BundleResult], None]) -> EpochRestrictions:
        context, task = self._context, self._context.task
        self._input = EpochRestrictions(
            store=task.store_of(context.program),
            start_bundle=context.start_bundle,
            on_completed=count,
            input_coder=context.input_coder,
            collection=context.program.collection,
            now_us=task.clock_us,
            spent_us=task.spent_us,
            budget_us=task.epoch.budget_us,
            idle_us=0 if task.epoch.clock_stands else _IDLE_US,
            truncate=self._truncate if task.epoch.drains else None,
        )
        return self._input

    def _truncate(self, restrictions: Sequence[WindowedValue]) -> list[WindowedValue]:
        program = self._context.program.in_epochs.truncator
        assert program is not None
        views = self._context.task.lookups(program.views)
        truncated, infos = run_helper(self._context.job, program, restrictions, views)
        self._truncating_infos += infos
        return truncated

    @override
    def run_due(self) -> None:
        self._input.run_due()

    @override
    def report(self, outcome: Outcome) -> None:
        outcome.was_cut_off = self._input.was_cut_off
        outcome.monitoring_infos += self._truncating_infos
