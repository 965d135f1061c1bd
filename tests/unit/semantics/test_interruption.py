"""How long the timers of a stage fire in an epoch."""

from collections.abc import Iterator

import pytest

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import NEVER_US, Instant

TO = Instant(MAX_US, MAX_US)


def spending(*times_us: int) -> Interruption:
    """Return one with a budget of 10, for which these times have been spent when it looks."""
    times: Iterator[int] = iter(times_us)
    return Interruption(lambda: next(times), 10, 1)


def test_what_was_read_before_takes_no_time_of_it() -> None:
    interruption = spending(1_000, 1_009, 1_010)
    interruption.fired()
    assert [interruption.is_over() for _ in range(3)] == [False, False, True]


def test_at_least_one_fires() -> None:
    interruption = spending(0, 500, 500)
    assert not interruption.is_over()
    assert not interruption.is_over()
    interruption.fired()
    assert interruption.is_over()


def test_its_time_begins_again() -> None:
    interruption = spending(0, 10, 5_000, 5_009, 5_010)
    interruption.fired()
    assert not interruption.stops(lambda _: True, TO)
    assert interruption.stops(lambda _: True, TO)
    interruption.begin_again()
    assert not interruption.was_interrupted
    assert [interruption.is_over() for _ in range(3)] == [False, False, True]


@pytest.mark.parametrize("is_left", [False, True])
def test_it_is_interrupted_only_if_something_is_left(is_left: bool) -> None:
    asked: list[Instant] = []

    def would_leave(to: Instant) -> bool:
        asked.append(to)
        return is_left

    interruption = spending(0, 10)
    interruption.fired()
    assert not interruption.stops(would_leave, TO)
    assert interruption.stops(would_leave, TO) is is_left
    assert interruption.was_interrupted is is_left
    # Timers of processing time are not interrupted.
    assert asked == [Instant(MAX_US, NEVER_US)]
