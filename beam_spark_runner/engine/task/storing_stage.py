"""Stages that store keys from epoch to epoch: steps with state or timers, and groupings."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.engine.rows.group_reader import GroupReader
from beam_spark_runner.engine.rows.keyed_reader import KeyedReader
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.engine.task.accumulator_merger import AccumulatorMerger
from beam_spark_runner.engine.task.open_stage import JoinedInput, charged_to
from beam_spark_runner.engine.task.stage_inputs import JoinedStoringInput
from beam_spark_runner.engine.task.waiting_stage import StageWithSideInputs
from beam_spark_runner.harness.bundle import StoringInput
from beam_spark_runner.harness.due import fire_due
from beam_spark_runner.plan.model import Stored
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.state.policy import KeyPolicy


class StoringStage(StageWithSideInputs):
    """A stage that stores keys from epoch to epoch."""

    def _open_input(self, now_us: Callable[[], int]) -> None:
        stages = self._stages
        self._merger: AccumulatorMerger | None = None
        self._interruption: Interruption | None = None
        batch = self._level.epoch and self._level.epoch.user_timer_batch
        has_keys = Stored.KEYS in self.program.in_epochs.stores
        if batch is not None or not has_keys:
            self._interruption = Interruption(stages.spent_us, stages.epoch.due_us, batch or 1)
        epoch = stages.epoch_of(self.program)._replace(interruption=self._interruption)
        if (merger := self.program.in_epochs.merger) is not None:
            self._merger = AccumulatorMerger(self._job, merger)
            epoch = epoch._replace(merge=self._merge)
        self._epoch = epoch
        clock_us = epoch.before.clock_us if stages.epoch.clock_stands else None
        watermark_us = MIN_US if self._gets_panes else epoch.before.watermark_us
        self._bundle = self._start_bundle(
            KeyPolicy(
                epoch.now,
                epoch.store,
                watermark_us,
                clock_us=clock_us,
                interruption=self._interruption,
                late=epoch.late,
                dropped=stages.dropped_of(self.program),
            )
        )
        if has_keys:
            bundle = cast(StoringInput, self._bundle)
            self._joined = JoinedStoringInput(bundle, self._bundle, self._following)
        else:
            self._joined = JoinedInput(self._bundle, self._following)
        self._wait_in_front()
        self._reader = reader_for(
            self.program.input,
            self._harness.input_coder,
            self._input(),
            self._logs,
            epoch,
            self._window_merger(),
        )

    def run_due(self) -> None:
        """Fire all timers and panes that are due."""
        reader = self._reader
        assert isinstance(reader, GroupReader | KeyedReader)
        with charged_to(self.program.name):
            self._bundle.enter()
            epoch = self._epoch
            if self._interruption is not None:
                self._interruption.begin_again()
            fire_due(epoch.store, epoch.now, reader.fire, self._interruption)
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
