"""Interrupts the firing of timers, so that an epoch can be committed if very many are due."""

from collections.abc import Callable

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import NEVER_US, Instant


class Interruption:
    """Says when a stage must not fire further timers in an epoch.

    One fires in any case, so that each epoch makes progress. What does not fire remains set.

    Args:
        spent_us: returns for how long the epoch has run.
        budget_us: for how long timers may fire.
        batch: how many timers an SDK harness gets at once. Between two batches it is asked
            whether it is over.

    Attributes:
        batch: see above.
        was_interrupted: timers that are due have not fired.

    Source: Flink ``InternalTimerServiceImpl.tryAdvanceWatermark`` (FLIP-443).
    """

    def __init__(self, spent_us: Callable[[], int], budget_us: int, batch: int) -> None:
        self._spent_us = spent_us
        self._budget_us = budget_us
        self._has_fired = False
        self.batch = batch
        self.was_interrupted = False

    def fired(self) -> None:
        """Note that a timer, or a batch of them, has fired."""
        self._has_fired = True

    def is_over(self) -> bool:
        """Whether no other timer may fire."""
        return self._has_fired and self._spent_us() >= self._budget_us

    def stops(self, would_leave: Callable[[Instant], bool], to: Instant) -> bool:
        """Whether timers of event time remain set although they are due; it is remembered.

        Timers of processing time are not interrupted.

        Args:
            would_leave: whether any timer remains that is due at an instant.
            to: until which timers were to fire.
        """
        if self.is_over() and would_leave(Instant(to.watermark_us, NEVER_US)):
            self.was_interrupted = True
            return True
        return False


def uninterrupted(to: Instant) -> Instant:
    """Return until when timers still fire where those of event time are interrupted.

    Timers of processing time are not interrupted, but at the end of all input: there they come
    after all those of event time.
    """
    return Instant(NEVER_US, NEVER_US if to.clock_us >= MAX_US else to.clock_us)
