"""The watermarks of the stages of a level, as a task of an epoch has them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.semantics import watermarks
from beam_spark_runner.semantics.timers import Instant, expiry_us
from beam_spark_runner.spark.program import StageProgram
from beam_spark_runner.spark.task.stage_kinds import uses_shard
from beam_spark_runner.state.store import StoredState


class EpochWatermarks:
    """From the watermarks that come to a task to those that it sends on, by destination.

    All stages of the level have one, also those that get no elements in this epoch. All are
    microseconds of event time.

    Args:
        epoch: what the task began with: elements are judged by its watermarks.
        arriving_us: what the levels before have sent.

    Attributes:
        inputs_us: of the inputs of stages, in this task; once ``advance`` has run.
        outputs_us: of destinations in later levels: until where this task has sent its elements.
        looks_up_us: of destinations that gather side inputs: the event time of the earliest
            element for which a stage of this task may still look it up.
        sent_us: of what a stage sends on, by the destination that the stage reads.
        holds_us: the least event time that is held by what a stage has stored, in the same way;
            those that hold nothing are missing.
    """

    def __init__(self, epoch: reports_pb2.Epoch, arriving_us: Mapping[int, int]) -> None:
        self._epoch = epoch
        self._before = dict(epoch.watermarks_us)
        self._arriving = dict(arriving_us)
        self.inputs_us: dict[int, int] = {}
        self.outputs_us: dict[int, int] = {}
        self.looks_up_us: dict[int, int] = {}
        self.sent_us: dict[int, int] = {}
        self.holds_us: dict[int, int] = {}

    def before_us(self, dest: int) -> int:
        """Return where a stage's input had come to before this epoch."""
        return self._before.get(dest, MIN_US)

    def is_expired(self, program: StageProgram, window: Any) -> bool:
        """See ``StagesOfEpoch.is_expired``."""
        return self.is_over(program, window.max_timestamp().micros)

    def is_over(self, program: StageProgram, end_us: int) -> bool:
        """See ``StagesOfEpoch.is_over``."""
        return expiry_us(end_us, program.lateness_us) <= self.before_us(int(program.input.dest))

    def advance_of(self, program: StageProgram) -> tuple[Instant, Instant]:
        """Return until when a stage that stores keys came before, and until when it comes now."""
        dest = int(program.input.dest)
        before_us = self.before_us(dest)
        if program.is_stable:  # another attempt may find another watermark, and another clock
            arriving_us, clock_us = before_us, self._epoch.committed_clock_us
        else:
            arriving_us = _passed_us(program, self._arriving.get(dest, MAX_US))
            clock_us = self._epoch.clock_us
        return watermarks.advance_of(before_us, arriving_us, clock_us)

    def advance(
        self,
        programs: Sequence[StageProgram],
        store_of: Callable[[StageProgram], StoredState],
        interrupted: Collection[StageId],
    ) -> None:
        """Compute the attributes, once all stages have finished.

        Args:
            programs: of the level's stages, producers before consumers.
            store_of: gives what a stage has in the shard.
            interrupted: stages of which timers are due that have not fired.
        """
        here = {program.stage: int(program.input.dest) for program in programs}
        inputs = dict(self._arriving)
        for program in programs:
            dest = int(program.input.dest)
            before_us = self.before_us(dest)
            output_us = max(_passed_us(program, inputs.get(dest, MAX_US)), before_us)
            self.inputs_us[dest] = output_us
            if program.is_stable and not program.description.is_splittable:
                output_us = before_us
            looks_up_us = output_us
            if uses_shard(program):
                hold_us, left_due_us = store_of(program).least_hold(), None
                if program.stage in interrupted:
                    left_due_us, _ = store_of(program).next_due()
                output_us = watermarks.output_us(output_us, hold_us, left_due_us)
                # Restrictions hold what they say, which may be past the windows of their elements.
                is_pending = program.description.is_splittable and hold_us is not None
                looks_up_us = MIN_US if is_pending else output_us
                if hold_us is not None:
                    self.holds_us[dest] = hold_us
            self.sent_us[dest] = output_us
            for view in program.views.values():
                _lower(self.looks_up_us, int(view.dest), looks_up_us)
            for edges in program.outputs.values():
                for edge in edges:
                    _lower(self.outputs_us, int(edge.dest), output_us)
            for stages in program.local.values():
                for stage in stages:
                    _lower(inputs, here[stage], output_us)
        for dest, watermark_us in self._arriving.items():
            if dest not in here.values():  # of a level further on
                _lower(self.outputs_us, dest, watermark_us)


def _passed_us(program: StageProgram, watermark_us: int) -> int:
    """Return up to where a stage has got all its elements.

    Those that come later may come in the order of time only if what is late by less than the
    allowed lateness is waited for.

    Source: Java ``DoFn.RequiresTimeSortedInput``.
    """
    if not program.input.is_time_sorted or watermark_us == MAX_US:
        return watermark_us
    return max(MIN_US, watermark_us - program.lateness_us)


def _lower(watermarks: dict[int, int], dest: int, watermark_us: int) -> None:
    watermarks[dest] = min(watermarks.get(dest, watermark_us), watermark_us)
