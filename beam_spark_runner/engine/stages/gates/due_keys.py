"""Keys that have timers or panes due."""

from collections.abc import Callable

from typing_extensions import override

from beam_spark_runner.engine.rows.coder_errors import StageEpoch
from beam_spark_runner.engine.rows.group_reader import GroupReader
from beam_spark_runner.engine.stages.accumulator_merger import AccumulatorMerger
from beam_spark_runner.engine.stages.gates.gate import Gate
from beam_spark_runner.engine.stages.operator import Operator
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.harness.due import fire_due


class DueKeys(Gate):
    """Fires the timers and panes of the keys in the store when they are due.

    Args:
        epoch: the store of the stage, and its times.
        operator: processes what fires.
        fire: fires what is due of an owner and a key: see ``fire_due``.
    """

    def __init__(
        self, epoch: StageEpoch, operator: Operator, fire: Callable[[str, bytes], None]
    ) -> None:
        self._epoch = epoch
        self._operator = operator
        self._fire = fire

    @override
    def run_due(self) -> None:
        epoch = self._epoch
        self._operator.enter()
        if epoch.interruption is not None:
            epoch.interruption.begin_again()
        fire_due(epoch.store, epoch.now, self._fire, epoch.interruption)

    @override
    def report(self, outcome: Outcome) -> None:
        """A bundle in another process fires its last timers at its end."""
        if self._epoch.interruption is not None:
            outcome.was_interrupted = self._epoch.interruption.was_interrupted


class DueGroups(DueKeys):
    """Fires the panes of a grouping.

    Args:
        epoch: the store of the stage, and its times.
        operator: processes the panes.
        reader: has the groups.
        merger: merges accumulators; None: the grouping has none.
    """

    def __init__(
        self,
        epoch: StageEpoch,
        operator: Operator,
        reader: GroupReader,
        merger: AccumulatorMerger | None = None,
    ) -> None:
        super().__init__(epoch, operator, reader.fire)
        self._reader = reader
        self._merger = merger

    @override
    def run_due(self) -> None:
        super().run_due()
        self._reader.finish_epoch()

    @override
    def report(self, outcome: Outcome) -> None:
        super().report(outcome)
        if self._merger is not None:
            outcome.monitoring_infos += self._merger.infos
