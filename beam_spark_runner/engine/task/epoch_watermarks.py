"""The watermarks of the stages of a level, in one task of an epoch."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.engine.program import StageProgram
from beam_spark_runner.plan.model import Stored
from beam_spark_runner.plan.storing import lags
from beam_spark_runner.semantics import watermarks
from beam_spark_runner.semantics.timers import Instant, expiry_us


class EpochWatermarks:
    """Computes the watermarks that a task sends downstream from those that it gets.

    All stages of the level have watermarks, also those that get no elements in this epoch. They
    are event times in microseconds, by destination.

    Args:
        epoch: the epoch; its watermarks decide which elements are late.
        arriving_us: the input watermarks that the levels upstream have sent.

    Attributes:
        inputs_us: the input watermark of each stage, in this task; set by ``advance``, as all are.
        outputs_us: for each destination in later levels: this task has sent it all elements that
            are earlier.
        looks_up_us: for each destination that gathers a side input: the event time of the earliest
            element for which a stage of this task may still look it up.
        sent_us: the output watermark of each stage, by the destination that it reads.
        holds_us: the earliest hold in each stage's store, by the destination that it reads; stages
            without a hold are missing.
    """

    def __init__(self, epoch: reports_pb2.Epoch, arriving_us: Mapping[int, int]) -> None:
        self._epoch = epoch
        self._previous_us = dict(epoch.watermarks_us)
        self._arriving_us = dict(arriving_us)
        self.inputs_us: dict[int, int] = {}
        self.outputs_us: dict[int, int] = {}
        self.looks_up_us: dict[int, int] = {}
        self.sent_us: dict[int, int] = {}
        self.holds_us: dict[int, int] = {}

    def before_us(self, dest: int) -> int:
        """Return the watermark of a stage's input before this epoch."""
        return self._previous_us.get(dest, MIN_US)

    def is_expired(self, program: StageProgram, window: Any) -> bool:
        """See ``StagesOfEpoch.is_expired``."""
        return self.is_over(program, window.max_timestamp().micros)

    def is_over(self, program: StageProgram, end_us: int) -> bool:
        """See ``StagesOfEpoch.is_over``."""
        expires_us = expiry_us(end_us, program.in_epochs.lateness_us)
        return expires_us <= self.before_us(int(program.input.dest))

    def advance_of(self, program: StageProgram) -> tuple[Instant, Instant]:
        """Return the time of a stage that stores keys: before this epoch, and after it."""
        dest = int(program.input.dest)
        before_us = self.before_us(dest)
        if Stored.UNCOMMITTED in program.in_epochs.stores:
            # Another attempt may find another watermark, and another clock.
            arriving_us, clock_us = before_us, self._epoch.committed_clock_us
        else:
            arriving_us = _passed_us(program, self._arriving_us.get(dest, MAX_US))
            clock_us = self._epoch.clock_us
        return watermarks.advance_of(before_us, arriving_us, clock_us)

    def advance(
        self,
        programs: Sequence[StageProgram],
        least_hold: Callable[[StageProgram], int | None],
        next_due: Callable[[StageProgram], tuple[int | None, int | None]],
        interrupted: Collection[StageId],
    ) -> None:
        """Compute the attributes, once all stages have finished.

        Args:
            programs: the programs of the level's stages, producers before consumers.
            least_hold: returns the least hold of what a stage stores.
            next_due: returns the first due times of a stage, in event and in processing time.
            interrupted: stages with timers that are due and have not fired.
        """
        here = {program.stage: int(program.input.dest) for program in programs}
        inputs = dict(self._arriving_us)
        for program in programs:
            dest, part = int(program.input.dest), program.in_epochs
            before_us = self.before_us(dest)
            output_us = max(_passed_us(program, inputs.get(dest, MAX_US)), before_us)
            self.inputs_us[dest] = output_us
            if lags(part.stores):
                output_us = before_us
            looks_up_us = output_us
            if part.stores:
                hold_us, left_due_us = least_hold(program), None
                if program.stage in interrupted:
                    left_due_us, _ = next_due(program)
                output_us = watermarks.output_us(output_us, hold_us, left_due_us)
                # A restriction's hold is its own watermark, which may be past its windows.
                is_pending = Stored.RESTRICTIONS in part.stores and hold_us is not None
                looks_up_us = MIN_US if is_pending else output_us
                if hold_us is not None:
                    self.holds_us[dest] = hold_us
            self.sent_us[dest] = output_us
            for view in part.views.values():
                watermarks.lower(self.looks_up_us, int(view.dest), looks_up_us)
            for edges in program.outputs.values():
                for edge in edges:
                    watermarks.lower(self.outputs_us, int(edge.dest), output_us)
            for stages in program.local.values():
                for stage in stages:
                    watermarks.lower(inputs, here[stage], output_us)
        for dest, watermark_us in self._arriving_us.items():
            if dest not in here.values():  # of a level further on
                watermarks.lower(self.outputs_us, dest, watermark_us)


def _passed_us(program: StageProgram, watermark_us: int) -> int:
    """Return the event time up to which a stage may process its input.

    Time-sorted input waits for elements that are late by less than the allowed lateness, so that
    these are in order, too.

    Source: Java ``DoFn.RequiresTimeSortedInput``.
    """
    part = program.in_epochs
    if Stored.UNSORTED not in part.stores or watermark_us == MAX_US:
        return watermark_us
    return max(MIN_US, watermark_us - part.lateness_us)
