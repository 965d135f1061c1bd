import dataclasses

import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.scheduling.epochs import (
    Epoch,
    Progress,
    budget_us,
    next_played_epoch,
    next_timed_epoch,
    wait_us,
)
from beam_spark_runner.scheduling.playback import (
    AdvanceClock,
    AdvanceWatermark,
    Elements,
    Event,
    TimedElement,
    watermarks_after,
)

ELEMENTS = Elements("a", (TimedElement(b"x", 5),))
EVENTS = (ELEMENTS, AdvanceClock(10), AdvanceWatermark("a", 7), AdvanceClock(5))


def after(epoch: Epoch, next_clock_us: int | None = None) -> Progress:
    return Progress(
        epoch=epoch.number,
        clock_us=epoch.clock_us,
        events=epoch.events,
        next_clock_us=next_clock_us,
    )


def played(events: tuple[Event, ...]) -> list[Epoch]:
    """Run all epochs of a pipeline in which nothing waits for processing time."""
    epochs: list[Epoch] = []
    progress = Progress()
    while (epoch := next_played_epoch(progress, events)) is not None:
        epochs.append(epoch)
        progress = dataclasses.replace(after(epoch), is_final=epoch.events > len(events))
    return epochs


def test_an_epoch_for_each_event_and_one_for_the_end() -> None:
    epochs = played(EVENTS)
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5]
    assert [epoch.elements for epoch in epochs] == [ELEMENTS, None, None, None, None]


def test_impulses_come_once() -> None:
    assert [epoch.feeds_impulses for epoch in played(EVENTS)] == [True] + [False] * 4
    assert [epoch.feeds_impulses for epoch in played(())] == [True]


def test_processing_time_stands_still_but_for_what_is_added() -> None:
    assert [epoch.clock_us for epoch in played(EVENTS)] == [0, 10, 10, 15, 15]


def test_what_is_due_comes_before_the_next_event() -> None:
    first = next_played_epoch(Progress(), EVENTS)
    assert first is not None
    second = next_played_epoch(after(first, next_clock_us=0), EVENTS)
    assert second == Epoch(number=2, clock_us=0, events=1, feeds_impulses=False)
    third = next_played_epoch(after(second, next_clock_us=3), EVENTS)
    assert third == Epoch(number=3, clock_us=10, events=2, feeds_impulses=False)


def test_after_the_end_of_the_stream_processing_time_jumps() -> None:
    last = Progress(epoch=5, clock_us=15, events=5, next_clock_us=100)
    assert next_played_epoch(last, EVENTS) == Epoch(
        number=6, clock_us=100, events=5, feeds_impulses=False
    )


def test_nothing_is_left_after_the_end() -> None:
    done = Progress(epoch=9, clock_us=1, events=len(EVENTS) + 1, is_final=True)
    assert next_played_epoch(done, EVENTS) is None
    assert next_timed_epoch(done, 5) is None


def test_the_first_epoch_begins_at_once() -> None:
    assert next_timed_epoch(Progress(), 70) == Epoch(number=1, clock_us=70, feeds_impulses=True)


@pytest.mark.parametrize(
    ("next_clock_us", "now_us", "clock_us"), [(80, 90, 90), (80, 70, 80), (40, 30, 50)]
)
def test_an_epoch_begins_when_something_is_due(
    next_clock_us: int, now_us: int, clock_us: int
) -> None:
    progress = Progress(epoch=1, clock_us=50, next_clock_us=next_clock_us)
    assert next_timed_epoch(progress, now_us) == Epoch(
        number=2, clock_us=clock_us, feeds_impulses=False
    )


def test_what_is_due_at_once_waits_for_no_clock() -> None:
    progress = Progress(epoch=1, clock_us=50, next_clock_us=80, is_due=True)
    epoch = Epoch(number=2, clock_us=50, feeds_impulses=False)
    assert next_timed_epoch(progress, 40) == epoch
    assert next_played_epoch(progress, EVENTS) == epoch


@pytest.mark.parametrize(
    ("now_us", "rest_us", "expected_us"), [(90, -5, 0), (70, -5, 10), (70, 25, 25), (90, 25, 25)]
)
def test_a_driver_waits_until_something_is_due_and_the_interval_is_over(
    now_us: int, rest_us: int, expected_us: int
) -> None:
    progress = Progress(epoch=1, clock_us=50, next_clock_us=80)
    epoch = next_timed_epoch(progress, now_us)
    assert epoch is not None
    assert wait_us(progress, epoch, now_us, rest_us) == expected_us


def test_what_is_due_at_once_does_not_wait_although_the_clock_was_set_back() -> None:
    progress = Progress(epoch=1, clock_us=3_600_000_000, is_due=True)
    epoch = next_timed_epoch(progress, 40)
    assert epoch is not None
    assert epoch.clock_us == 3_600_000_000
    assert wait_us(progress, epoch, 40, 500) == 0


def test_a_pipeline_that_would_wait_for_ever_is_an_error() -> None:
    with pytest.raises(InvariantError, match="nothing is due"):
        next_timed_epoch(Progress(epoch=1), 5)
    with pytest.raises(InvariantError, match="nothing is due"):
        next_played_epoch(Progress(epoch=9, events=len(EVENTS) + 1), EVENTS)


@pytest.mark.parametrize(
    ("overhead_us", "expected_us"),
    [(None, 500), (0, 500), (100, 500), (200, 800), (10**9, 60_000_000)],
)
def test_the_budget_grows_with_what_an_epoch_costs_by_itself(
    overhead_us: int | None, expected_us: int
) -> None:
    assert budget_us(500, overhead_us) == expected_us


def test_watermarks_never_go_back_and_end_with_the_stream() -> None:
    events = (AdvanceWatermark("a", 7), AdvanceWatermark("a", 3), AdvanceWatermark("b", 1))
    seen = [dict(watermarks_after(events, count, ("a", "b"))) for count in range(5)]
    assert seen == [
        {"a": MIN_US, "b": MIN_US},
        {"a": 7, "b": MIN_US},
        {"a": 7, "b": MIN_US},
        {"a": 7, "b": 1},
        {"a": MAX_US, "b": MAX_US},
    ]
