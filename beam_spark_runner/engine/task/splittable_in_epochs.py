"""A stage whose root is a splittable DoFn, in an epoch: its restrictions are in the shard."""

from collections.abc import Callable, Iterable, Sequence

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.engine.rows.readers import ElementRowReader
from beam_spark_runner.engine.task.epoch_stage import EpochStage
from beam_spark_runner.engine.task.helper_bundle import run_helper
from beam_spark_runner.engine.task.open_stage import charged_to
from beam_spark_runner.engine.task.splittable_stage import OpenSplittable
from beam_spark_runner.harness.sdf.epoch_input import EpochRestrictions
from beam_spark_runner.plan.model import Stored

_IDLE_US = 100_000


class SplittableInEpochs(EpochStage, OpenSplittable):
    """Processes restrictions until the budget of the epoch is spent, and stores the residuals.

    With stable input, it processes stored restrictions before it reads new ones.
    """

    _input: EpochRestrictions

    def _open_restrictions(self, now_us: Callable[[], int]) -> None:
        stages = self._stages
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
            truncate=self._truncated if stages.epoch.drains else None,
        )
        self._reader = ElementRowReader(self.program.input, self._harness.input_coder, self._input)

    def _truncated(self, restrictions: Sequence[WindowedValue]) -> list[WindowedValue]:
        program = self.program.in_epochs.truncator
        assert program is not None
        views = self._stages.lookups(program.views)
        truncated, infos = run_helper(self._job, program, restrictions, views)
        self._infos += infos
        return truncated

    def begin(self) -> None:
        """See ``OpenStage.begin``."""
        if Stored.UNCOMMITTED in self.program.in_epochs.stores:
            self._run()

    def run_due(self) -> None:
        """See ``EpochRestrictions.run_due``."""
        if Stored.UNCOMMITTED not in self.program.in_epochs.stores:
            self._run()

    def finish(self) -> Iterable[bytes]:
        """See ``OpenSplittable.finish``."""
        self.was_cut_off = self._input.was_cut_off
        return super().finish()

    def _run(self) -> None:
        with charged_to(self.program.name):
            self._input.run_due()
