"""Interrupts the firing of timers, so that an epoch can be committed if very many are due."""

from collections.abc import Callable

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import NEVER_US, Instant


class Interruption:
    """Decides when a stage must not fire further timers in an epoch.

    At least one timer fires, so that each epoch makes progress. All others remain set. The time
    for it begins with the first timer: what an epoch has to read before takes none of it.

    Args:
        spent_us: Returns for how long the epoch has run.
        budget_us: The time for which timers may fire.
        batch: The number of timers that an SDK harness gets at once. The interruption is only
            between two batches.

    Attributes:
        batch: See above.
        was_interrupted: Whether timers that are due have not fired.

    Source: Flink ``InternalTimerServiceImpl.tryAdvanceWatermark`` (FLIP-443).
    """

    def __init__(self, spent_us: Callable[[], int], budget_us: int, batch: int) -> None:
        self._spent_us = spent_us
        self._budget_us = budget_us
        self._has_fired = False
        self._since_us: int | None = None  # when timers began to fire
        self.batch = batch
        self.was_interrupted = False

    def fired(self) -> None:
        """Note that a timer, or a batch of them, has fired."""
        self._has_fired = True

    def begin_again(self) -> None:
        """Restart the time: all elements have been read, and all keys that are due follow."""
        self._since_us = None
        self.was_interrupted = False

    def is_over(self) -> bool:
        """Whether no other timer may fire."""
        spent_us = self._spent_us()
        if self._since_us is None:
            self._since_us = spent_us
        return self._has_fired and spent_us - self._since_us >= self._budget_us

    def stops(self, would_leave: Callable[[Instant], bool], to: Instant) -> bool:
        """Whether due event-time timers remain set from now on; sets ``was_interrupted``.

        Processing-time timers are not interrupted.

        Args:
            would_leave: Returns whether timers remain that are due at an instant.
            to: The instant until which timers were to fire.
        """
        if self.is_over() and would_leave(Instant(to.watermark_us, NEVER_US)):
            self.was_interrupted = True
            return True
        return False


def uninterrupted(to: Instant) -> Instant:
    """Return the instant until which timers still fire once event-time timers are interrupted.

    Processing-time timers are not interrupted, except at the end of all input, where they fire
    after all event-time timers.
    """
    return Instant(NEVER_US, NEVER_US if to.clock_us >= MAX_US else to.clock_us)
