from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.scheduling.epochs import Epoch, Progress, next_epoch
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


def played(events: tuple[Event, ...]) -> list[Epoch]:
    """Run all epochs."""
    epochs: list[Epoch] = []
    progress = Progress()
    while (epoch := next_epoch(progress, events)) is not None:
        epochs.append(epoch)
        progress = Progress(epoch=epoch.number, clock_us=epoch.clock_us, events=epoch.events)
    return epochs


def test_an_epoch_for_each_event_and_one_for_the_end() -> None:
    epochs = played(EVENTS)
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4, 5]
    assert [epoch.elements for epoch in epochs] == [ELEMENTS, None, None, None, None]
    assert [epoch.is_last for epoch in epochs] == [False] * 4 + [True]


def test_impulses_come_once() -> None:
    assert [epoch.feeds_impulses for epoch in played(EVENTS)] == [True] + [False] * 4
    assert [epoch.feeds_impulses for epoch in played(())] == [True]


def test_processing_time_stands_still_but_for_what_is_added() -> None:
    assert [epoch.clock_us for epoch in played(EVENTS)] == [0, 10, 10, 15, 15]


def test_nothing_is_left_after_the_end() -> None:
    assert next_epoch(Progress(epoch=9, clock_us=1, events=len(EVENTS) + 1), EVENTS) is None


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
