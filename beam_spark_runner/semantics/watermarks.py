"""Computes the input and output watermark of a stage in an epoch."""

from beam_spark_runner.core.time import MAX_US, whole_milliseconds
from beam_spark_runner.semantics.timers import Instant


def advance_of(before_us: int, arriving_us: int, clock_us: int) -> tuple[Instant, Instant]:
    """Return until when a stage came in the epoch before, and until when it comes in this one.

    Args:
        before_us: watermark of the stage's input, as the epoch before left it.
        arriving_us: the same, as those who feed it say in this epoch.
        clock_us: processing time.
    """
    now_us = max(before_us, arriving_us)
    # At the end of all input nothing waits for a clock.
    now = Instant(now_us, MAX_US if now_us == MAX_US else clock_us)
    return Instant(before_us, clock_us), now


def output_us(input_us: int, hold_us: int | None, left_due_us: int | None) -> int:
    """Return the watermark of what a stage sends on, in whole milliseconds.

    Timestamps of elements have no more on the wire. A window's last moment is not one, so that a
    watermark held there would have passed the window's own pane.

    Args:
        input_us: watermark of its input.
        hold_us: the least event time that is held by what it has stored; None: nothing holds it.
        left_due_us: when the earliest timer of event time is due that has not fired although it
            is; None: all have.
    """
    held_us = min(input_us, MAX_US if hold_us is None else hold_us)
    if left_due_us is not None:
        held_us = min(held_us, left_due_us - 1)
    return whole_milliseconds(held_us)
