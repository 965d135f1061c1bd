"""Elements of a step that requires stable input: they wait until their epoch is committed."""

from typing_extensions import override

from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.gates.gate import Gate
from beam_spark_runner.engine.stages.operator import OneBundle
from beam_spark_runner.engine.stages.outcome import Outcome
from beam_spark_runner.engine.stages.siblings import StagesOfEpoch
from beam_spark_runner.harness.stable import StableElements
from beam_spark_runner.plan.model import Stored


class AwaitCommit(Gate):
    """Stores the elements of an epoch, and pushes those of the previous epoch.

    Args:
        context: the stage.
        operator: processes the elements.

    Attributes:
        elements: takes elements, and stores them.
    """

    def __init__(self, context: StageContext[StagesOfEpoch], operator: OneBundle) -> None:
        program, task = context.program, context.task
        self._operator = operator
        self._is_keyed = Stored.KEYS in program.in_epochs.stores
        self.elements = StableElements(
            task.store_of(program),
            context.input_coder,
            # Without keys, no state of a window can expire.
            is_expired=lambda window: self._is_keyed and task.is_expired(program, window),
            late=task.late_of(program),
            is_keyed=self._is_keyed,
        )
        self._keys = task.epoch_of(program).remote_store if self._is_keyed else None
        self._awaits = False

    @override
    def run_due(self) -> None:
        if self._is_keyed:
            self._operator.enter()
            ask = None if self._keys is None else self._keys.ask
            self.elements.release(self._operator.input, ask)
        else:  # the stage may have been opened by another bundle, which is running
            self.elements.release(self._operator.from_within())

    @override
    def save(self) -> None:
        self._awaits = self.elements.save()

    @override
    def report(self, outcome: Outcome) -> None:
        outcome.awaits_commit = self._awaits
