import dataclasses

import pytest

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.scheduling.epochs import (
    AwaitEvent,
    Epoch,
    Progress,
    next_played_epoch,
    next_timed_epoch,
    wait_us,
)
from beam_spark_runner.scheduling.test_stream_events import (
    AdvanceClock,
    AdvanceWatermark,
    Elements,
    End,
    Event,
    TimedElement,
)

ELEMENTS = Elements("a", (TimedElement(b"x", 5),))
EVENTS = (ELEMENTS, AdvanceClock(10), AdvanceWatermark("a", 7), AdvanceClock(5), End())


def next_of(events: tuple[Event, ...], progress: Progress) -> Epoch | AwaitEvent | None:
    """Ask for the next epoch where all events have arrived."""
    coming = events[progress.events] if progress.events < len(events) else None
    return next_played_epoch(progress, coming, has_ended=coming is None)


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
    while (epoch := next_of(events, progress)) is not None:
        assert isinstance(epoch, Epoch)
        epochs.append(epoch)
        progress = dataclasses.replace(after(epoch), is_final=isinstance(epoch.event, End))
    return epochs


def test_an_epoch_for_each_event_and_one_for_the_end() -> None:
    epochs = played(EVENTS)
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5]
    assert [epoch.event for epoch in epochs] == list(EVENTS)
    assert [epoch.event == End() for epoch in epochs] == [False] * 4 + [True]


def test_impulses_come_once() -> None:
    assert [epoch.feeds_impulses for epoch in played(EVENTS)] == [True] + [False] * 4
    assert [epoch.feeds_impulses for epoch in played((End(),))] == [True]


def test_processing_time_stands_still_but_for_what_is_added() -> None:
    assert [epoch.clock_us for epoch in played(EVENTS)] == [0, 10, 10, 15, 15]


def test_what_is_due_comes_before_the_next_event() -> None:
    first = next_of(EVENTS, Progress())
    assert isinstance(first, Epoch)
    second = next_of(EVENTS, after(first, next_clock_us=0))
    assert second == Epoch(number=2, clock_us=0, events=1, feeds_impulses=False)
    third = next_of(EVENTS, after(second, next_clock_us=3))
    assert third == Epoch(
        number=3,
        clock_us=10,
        events=2,
        event=AdvanceClock(10),
        feeds_impulses=False,
    )


def test_the_first_epoch_waits_for_no_event() -> None:
    assert next_played_epoch(Progress(), None, has_ended=False) == Epoch(
        number=1, clock_us=0, feeds_impulses=True
    )


@pytest.mark.parametrize("next_clock_us", [None, 11])
def test_an_event_is_awaited_while_nothing_is_due(next_clock_us: int | None) -> None:
    progress = Progress(epoch=3, clock_us=10, events=2, next_clock_us=next_clock_us)
    assert next_played_epoch(progress, None, has_ended=False) == AwaitEvent()


def test_what_is_due_waits_for_no_event() -> None:
    progress = Progress(epoch=3, clock_us=10, events=2, next_clock_us=10)
    assert next_played_epoch(progress, None, has_ended=False) == Epoch(
        number=4, clock_us=10, events=2, feeds_impulses=False
    )


def test_after_the_end_of_the_stream_processing_time_jumps() -> None:
    last = Progress(epoch=5, clock_us=15, events=5, next_clock_us=100)
    assert next_of(EVENTS, last) == Epoch(number=6, clock_us=100, events=5, feeds_impulses=False)


def test_nothing_is_left_after_the_end() -> None:
    done = Progress(epoch=9, clock_us=1, events=len(EVENTS), is_final=True)
    assert next_of(EVENTS, done) is None
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
    assert next_of(EVENTS, progress) == epoch


@pytest.mark.parametrize(
    ("now_us", "rest_us", "expected_us"), [(90, -5, 0), (70, -5, 10), (70, 25, 25), (90, 25, 25)]
)
def test_a_driver_waits_until_something_is_due_and_the_interval_is_over(
    now_us: int, rest_us: int, expected_us: int
) -> None:
    progress = Progress(epoch=1, clock_us=50, next_clock_us=80)
    epoch = next_timed_epoch(progress, now_us)
    assert epoch is not None
    assert wait_us(progress, epoch, now_us, rest_us, passed_us=now_us - 50) == expected_us


def test_the_epoch_that_begins_a_drain_is_due_at_once() -> None:
    progress = Progress(epoch=1, clock_us=50, next_clock_us=80)
    epoch = next_timed_epoch(progress, 60, drains=True)
    assert epoch == Epoch(number=2, clock_us=60, feeds_impulses=False, drains=True)
    assert wait_us(progress, epoch, 60, 0, passed_us=10) == 0
    assert wait_us(progress, epoch, 60, 500, passed_us=10) == 0
    assert wait_us(progress, epoch, 40, 0, passed_us=10) == 0  # the clock was set back


@pytest.mark.parametrize("drains", [False, True])
def test_a_drain_continues_in_later_epochs(drains: bool) -> None:
    progress = Progress(epoch=2, clock_us=60, next_clock_us=80, drains=True)
    epoch = next_timed_epoch(progress, 70, drains=drains)
    assert epoch == Epoch(number=3, clock_us=80, feeds_impulses=False, drains=True)


def test_what_is_due_at_once_does_not_wait_although_the_clock_was_set_back() -> None:
    progress = Progress(epoch=1, clock_us=3_600_000_000, is_due=True)
    epoch = next_timed_epoch(progress, 40)
    assert epoch is not None
    assert epoch.clock_us == 3_600_000_000
    assert wait_us(progress, epoch, 40, 500, passed_us=0) == 0


MINUTE_US, SECOND_US = 60_000_000, 1_000_000


@pytest.mark.parametrize(
    ("delay_us", "passed_us", "expected_us"),
    [
        pytest.param(0, 0, 0, id="a restriction without a delay, or a timer that is due"),
        pytest.param(-MINUTE_US, 0, 0, id="one that was due before"),
        pytest.param(3_000, 0, 30_000, id="the rest of a source with a backlog"),
        pytest.param(100_000, 0, SECOND_US, id="an idle source"),
        pytest.param(100_000, 400_000, 600_000, id="an idle source, later"),
        pytest.param(5 * SECOND_US, 0, 50 * SECOND_US, id="a delay"),
        pytest.param(MINUTE_US, 0, 2 * MINUTE_US, id="a long delay waits for the clock"),
    ],
)
def test_a_clock_that_was_set_back_by_a_minute(
    delay_us: int, passed_us: int, expected_us: int
) -> None:
    progress = Progress(epoch=7, clock_us=100 * MINUTE_US, next_clock_us=100 * MINUTE_US + delay_us)
    now_us = 99 * MINUTE_US
    epoch = next_timed_epoch(progress, now_us)
    assert epoch is not None
    assert wait_us(progress, epoch, now_us, -5, passed_us=passed_us) == expected_us
    assert wait_us(progress, epoch, now_us, 7, passed_us=passed_us) == max(7, expected_us)


def test_a_pipeline_that_would_wait_forever_is_an_error() -> None:
    with pytest.raises(InvariantError, match="nothing is due"):
        next_timed_epoch(Progress(epoch=1), 5)
    with pytest.raises(InvariantError, match="nothing is due"):
        next_of(EVENTS, Progress(epoch=9, events=len(EVENTS)))
