"""Computes the input and output watermark of a stage in an epoch."""

from collections.abc import Iterable, Mapping

from beam_spark_runner.core.time import MAX_US, whole_milliseconds
from beam_spark_runner.semantics.timers import Instant


def advance_of(before_us: int, arriving_us: int, clock_us: int) -> tuple[Instant, Instant]:
    """Return the instants from which and to which a stage advances in an epoch.

    Args:
        before_us: The stage's input watermark after the previous epoch.
        arriving_us: Its input watermark in this epoch, from the marks of tasks upstream.
        clock_us: The processing time of this epoch.
    """
    now_us = max(before_us, arriving_us)
    # At the end of all input nothing waits for a clock.
    now = Instant(now_us, MAX_US if now_us == MAX_US else clock_us)
    return Instant(before_us, clock_us), now


def lower(times_us: dict[int, int], dest: int, time_us: int) -> None:
    """Lower the time of a destination to the given one, if that is earlier or the first."""
    times_us[dest] = min(times_us.get(dest, time_us), time_us)


def least(reported: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the least of all times of each destination."""
    times_us: dict[int, int] = {}
    for report in reported:
        for dest, time_us in report.items():
            lower(times_us, dest, time_us)
    return times_us


def output_us(input_us: int, hold_us: int | None, left_due_us: int | None) -> int:
    """Return the output watermark of a stage, in whole milliseconds.

    Encoded timestamps of elements are in milliseconds, too. A window's largest timestamp is not a
    whole millisecond, so that a watermark there would have passed the window's own pane.

    Args:
        input_us: The input watermark.
        hold_us: The least hold in the shard; None: there is no hold.
        left_due_us: The time of the earliest event-time timer that is due but has not fired;
            None: all due timers have fired.
    """
    held_us = min(input_us, MAX_US if hold_us is None else hold_us)
    if left_due_us is not None:
        held_us = min(held_us, left_due_us - 1)
    return whole_milliseconds(held_us)
