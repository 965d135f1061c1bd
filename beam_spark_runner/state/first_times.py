"""The times by which the timers of an owner are indexed."""

from collections.abc import Sequence
from typing import NamedTuple

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import StoredTimer


class FirstTimes(NamedTuple):
    """The first due time of each domain, and the least hold, of some timers.

    Attributes:
        event_us: The first due time in event time; None: there is none.
        clock_us: That in processing time.
        hold_us: The least hold, event time; ``MAX_US``: there is none.
    """

    event_us: int | None
    clock_us: int | None
    hold_us: int

    @property
    def listed_hold_us(self) -> int:
        """The hold of which a list of holders needs a record; ``MAX_US``: none.

        The watermark does not pass an event time that is due before its timer has fired, so that
        the index of due times holds it there.
        """
        is_implied = self.event_us is not None and self.event_us <= self.hold_us
        return MAX_US if is_implied else self.hold_us


def first_times(timers: Sequence[StoredTimer]) -> FirstTimes:
    """Return the first times of some timers."""
    event_us = clock_us = None
    least_us = MAX_US
    for _, _, _, domain, fires_us, hold_us, _ in timers:
        least_us = min(least_us, hold_us)
        if domain is Domain.PROCESSING_TIME:
            clock_us = fires_us if clock_us is None else min(clock_us, fires_us)
        else:
            event_us = fires_us if event_us is None else min(event_us, fires_us)
    return FirstTimes(event_us, clock_us, least_us)
