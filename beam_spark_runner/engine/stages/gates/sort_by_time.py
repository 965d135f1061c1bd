"""Elements of a step that requires time-sorted input: they wait for the watermark."""

from beam_spark_runner.engine.rows.coder_errors import StageEpoch
from beam_spark_runner.engine.stages.context import StageContext
from beam_spark_runner.engine.stages.gates.due_keys import DueKeys
from beam_spark_runner.engine.stages.operator import OneBundle
from beam_spark_runner.engine.stages.siblings import StagesOfEpoch
from beam_spark_runner.harness.time_sorted import TimeSortedElements


class SortByTime(DueKeys):
    """Stores elements, and pushes those of a key in order, between its timers, when it is due.

    Args:
        context: the stage.
        epoch: the store of the stage, and its times.
        operator: processes the elements.

    Attributes:
        elements: takes elements, and stores them.
    """

    def __init__(
        self,
        context: StageContext[StagesOfEpoch],
        epoch: StageEpoch,
        operator: OneBundle,
    ) -> None:
        super().__init__(epoch, operator, self._process)
        program, task = context.program, context.task
        self._until_us = epoch.now.watermark_us
        self._input, self._keys = operator.input, operator.keys
        self.elements = TimeSortedElements(
            epoch.store,
            context.input_coder,
            late_before_us=epoch.before.watermark_us,
            is_expired=lambda window: task.is_expired(program, window),
            late=epoch.late,
            has_timers=program.description.has_timers,
        )

    def _process(self, owner: str, key: bytes) -> None:
        self.elements.process(key, self._input, self._keys, self._until_us)
