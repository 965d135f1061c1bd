"""Records of a declarative step that an epoch leaves in flight, for the next one."""

from typing_extensions import override

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.gates.gate import Gate
from beam_spark_runner.engine.stages.operator import OneBundle
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.siblings import StagesOfEpoch
from beam_spark_runner.harness.stored_in_flight import store_left, take_left


class RecordsInFlight(Gate):
    """Continues the records that the previous epoch has left, and stores those of this one.

    Args:
        context: the stage.
        operator: processes the records.
    """

    def __init__(self, context: StageContext[StagesOfEpoch], operator: OneBundle) -> None:
        self._store = context.task.store_of(context.program)
        self._operator = operator

    @override
    def begin(self) -> None:
        assert self._operator.keys is not None
        if records := take_left(self._store):
            self._operator.keys.restore(records)

    @override
    def save(self) -> None:
        store_left(self._store, self._operator.settled.left)

    @override
    def report(self, outcome: Outcome) -> None:
        settled = self._operator.settled
        outcome.was_interrupted |= not settled.is_finished
        outcome.needs = settled.needs
        if settled.left:
            hold_us = min(record.hold_us for record in settled.left)
            outcome.left = reports_pb2.Residuals(count=len(settled.left), hold_us=hold_us)
