from collections.abc import Callable

import pytest

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.driving.playback import EventsInTurn, KnownEvents, Playback
from beam_spark_runner.recovery.manifest import IncompatibleCheckpointError
from beam_spark_runner.scheduling.epochs import Epoch, Progress
from beam_spark_runner.scheduling.test_stream_events import (
    AdvanceClock,
    AdvanceWatermark,
    End,
    EndOfStream,
    Event,
)

EVENTS = (AdvanceWatermark("a", 7), AdvanceClock(10), End())


def nothing() -> None:
    pass


def playback(
    events: KnownEvents | None = None, check_cancelled: Callable[[], None] = nothing
) -> Playback:
    return Playback(events or KnownEvents(EVENTS), ("a",), "Events", check_cancelled)


class SlowEvents(KnownEvents):
    """Gives nothing to who does not wait."""

    def take(self, timeout_s: float) -> Event | None:
        return super().take(timeout_s) if timeout_s else None


def test_events_are_taken_one_by_one_as_they_are_committed() -> None:
    played = playback()
    first = played.next_epoch(Progress())
    assert first == played.next_epoch(Progress()), "it has not been committed"
    assert first is not None
    assert first.event == EVENTS[0]
    assert played.after(first).watermarks_us == {"a": 7}
    second = played.next_epoch(Progress(epoch=1, events=1))
    assert second is not None
    assert (second.event, second.clock_us) == (EVENTS[1], 10)
    assert played.after(second).watermarks_us == {"a": 7}


def test_what_was_committed_earlier_is_skipped() -> None:
    played = playback()
    epoch = played.next_epoch(Progress(epoch=5, events=2, clock_us=10))
    assert epoch is not None
    assert epoch.event == End()
    assert played.played.watermarks_us == {"a": 7}


def test_after_the_end_nothing_is_asked_for() -> None:
    played = playback()
    epoch = played.next_epoch(Progress(epoch=5, events=3, clock_us=10, next_clock_us=30))
    assert epoch == Epoch(number=6, clock_us=30, events=3, feeds_impulses=False)
    assert playback().next_epoch(Progress(epoch=5, events=3, is_final=True)) is None


def test_fewer_events_than_have_happened() -> None:
    with pytest.raises(
        IncompatibleCheckpointError,
        match=r"Events: the checkpoint has 9 events .*, which now has only 3",
    ):
        playback().next_epoch(Progress(epoch=9, events=9))


def test_what_is_due_runs_while_nothing_has_arrived() -> None:
    played = playback(SlowEvents(EVENTS))
    first = played.next_epoch(Progress())
    assert first is not None
    assert (first.event, first.feeds_impulses) == (None, True)
    due = played.next_epoch(Progress(epoch=1, next_clock_us=0))
    assert due is not None
    assert due.event is None
    awaited = played.next_epoch(Progress(epoch=2, next_clock_us=5))
    assert awaited is not None
    assert awaited.event == EVENTS[0]


def test_a_stream_that_is_drained_ends_without_its_further_events() -> None:
    played = playback()
    epoch = played.next_epoch(Progress(epoch=1, events=1), lambda: True)
    assert epoch == Epoch(number=2, clock_us=0, events=1, feeds_impulses=False, drains=True)
    assert played.after(epoch).watermarks_us == {"a": MAX_US}
    progress = Progress(epoch=2, events=1, next_clock_us=30, drains=True)
    later = Epoch(number=3, clock_us=30, events=1, feeds_impulses=False, drains=True)
    assert played.next_epoch(progress) == later
    assert playback().next_epoch(progress) == later, "after a restart"


def test_a_drain_ends_the_wait_for_an_event() -> None:
    asked: list[bool] = []

    def drains() -> bool:
        asked.append(len(asked) > 1)
        return asked[-1]

    epoch = playback(KnownEvents(())).next_epoch(Progress(epoch=1), drains)
    assert epoch == Epoch(number=2, clock_us=0, feeds_impulses=False, drains=True)
    assert asked == [False, False, True]


def test_a_drain_does_not_wait_for_events_that_have_happened() -> None:
    """A service that is to end sends no more of them."""
    played = playback(KnownEvents(()))
    epoch = played.next_epoch(Progress(epoch=4, events=3), lambda: True)
    assert epoch is not None
    assert (epoch.events, epoch.drains) == (3, True)
    assert played.played.has_ended


def test_a_job_that_is_to_end_waits_for_nothing() -> None:
    def cancelled() -> None:
        raise RunnerError("cancelled")

    with pytest.raises(RunnerError, match="cancelled"):
        playback(KnownEvents(()), cancelled).next_epoch(Progress(epoch=1))


LONG = (AdvanceWatermark("a", 1), AdvanceClock(10), AdvanceWatermark("a", 2), End())
SHORT = (AdvanceWatermark("b", 7), End())


def test_streams_take_turns_and_each_ends_by_itself() -> None:
    events = EventsInTurn([(KnownEvents(LONG), ["a"]), (KnownEvents(SHORT), ["b", "c"])])
    taken = [events.take(0) for _ in range(7)]
    assert taken == [
        AdvanceWatermark("a", 1),
        AdvanceWatermark("b", 7),
        AdvanceClock(10),
        EndOfStream(frozenset({"b", "c"})),
        AdvanceWatermark("a", 2),
        End(),
        None,
    ]


def test_a_stream_that_has_nothing_yet_is_waited_for() -> None:
    """So that the order is the same in each run."""
    events = EventsInTurn([(SlowEvents(SHORT), ["b"]), (KnownEvents(LONG), ["a"])])
    assert [events.take(0), events.take(0)] == [None, None]
    assert [events.take(1), events.take(0)] == [SHORT[0], LONG[0]]


def test_streams_continue_in_the_same_order() -> None:
    streams = [(KnownEvents(LONG), ["a"]), (KnownEvents(SHORT), ["b"])]
    played = Playback(EventsInTurn(streams), ("a", "b"), "Events", nothing)
    epoch = played.next_epoch(Progress(epoch=4, events=4, clock_us=10))
    assert played.played.watermarks_us == {"a": 1, "b": MAX_US}
    assert epoch is not None
    assert epoch.event == AdvanceWatermark("a", 2)
    assert played.after(epoch).watermarks_us == {"a": 2, "b": MAX_US}
    assert not played.after(epoch).has_ended


def test_all_streams_are_stopped() -> None:
    stopped: list[str] = []

    class Stoppable(KnownEvents):
        def stop(self) -> None:
            stopped.append("stopped")

    events = EventsInTurn([(Stoppable(SHORT), ["b"]), (Stoppable(LONG), ["a"])])
    while events.take(0) is not None:
        pass
    events.stop()
    assert stopped == ["stopped", "stopped"]
