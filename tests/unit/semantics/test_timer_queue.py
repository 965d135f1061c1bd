"""Which timer of a key fires next, whatever elements and callbacks set and clear."""

import pytest
from apache_beam.transforms.window import GlobalWindow, IntervalWindow

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.semantics.interruption import uninterrupted
from beam_spark_runner.semantics.timers import (
    END_OF_TIME,
    Domain,
    DroppedTimers,
    Instant,
    Timer,
    TimerId,
    TimerQueue,
    due_by,
    expiry_us,
    held,
)

EVENT, PROCESSING, EXPIRATION = Domain
END = 100  # of the only window, where nothing else is said


def timer(
    family: str, fires_us: int, domain: Domain = EVENT, tag: str = "", hold_us: int | None = None
) -> Timer:
    hold_us = fires_us if hold_us is None else hold_us
    return Timer(TimerId(family, tag, "window"), domain, fires_us, hold_us)


def set_all(*timers: Timer, dropped: DroppedTimers | None = None) -> TimerQueue:
    queue = TimerQueue(dropped)
    for each in timers:
        queue.set(each, expires_us=END)
    return queue


def fired(queue: TimerQueue, to: Instant = END_OF_TIME) -> list[tuple[str, str, int]]:
    found = []
    while (due := queue.pop(to)) is not None:
        found.append((due.id.family, due.id.tag, due.fires_us))
    return found


def test_timers_fire_in_the_order_of_time() -> None:
    queue = set_all(timer("b", 7), timer("a", 3), timer("a", 9, tag="late"), timer("c", 3))
    assert fired(queue) == [("a", "", 3), ("c", "", 3), ("b", "", 7), ("a", "late", 9)]


def test_a_timer_that_is_set_again_fires_once() -> None:
    queue = set_all(timer("a", 9), timer("b", 5), timer("a", 3), timer("b", 6))
    assert fired(queue) == [("a", "", 3), ("b", "", 6)]


def test_one_that_moves_to_the_other_domain_fires_there() -> None:
    assert fired(set_all(timer("a", 9), timer("a", 9, PROCESSING))) == [("a", "", 9)]


@pytest.mark.parametrize("set_again", [False, True])
def test_timers_outside_of_time_fire_at_its_beginning_and_its_end(set_again: bool) -> None:
    """User code sets a timer for the greatest number that it knows, so that it never fires."""
    before, after = -(1 << 73), 1 << 73  # as many microseconds as Java's longs have milliseconds
    timers = [
        timer("a", after, PROCESSING, hold_us=before),
        timer("b", before, PROCESSING),
        timer("c", before),
    ]
    queue = set_all(*timers, *timers * set_again)
    assert [each.hold_us for each in queue.remaining()] == [MIN_US] * 3
    assert fired(queue) == [("c", "", MIN_US), ("b", "", MIN_US), ("a", "", MAX_US)]


def test_a_cleared_timer_never_fires() -> None:
    queue = set_all(timer("a", 3), timer("b", 4))
    queue.clear(TimerId("a", "", "window"))
    queue.clear(TimerId("never set", "", "window"))
    assert fired(queue) == [("b", "", 4)]


def test_cleared_by_the_callback_of_a_timer_that_is_due_at_the_same_moment() -> None:
    queue = set_all(timer("a", 3), timer("b", 3))
    first = queue.pop(END_OF_TIME)
    assert first is not None
    assert first.id.family == "a"
    queue.clear(TimerId("b", "", "window"))
    assert fired(queue) == []


def test_cleared_and_set_again() -> None:
    queue = set_all(timer("a", 3))
    queue.clear(TimerId("a", "", "window"))
    queue.set(timer("a", 3), expires_us=END)
    assert fired(queue) == [("a", "", 3)]


def test_a_callback_that_sets_a_timer_for_a_moment_gone_by() -> None:
    queue = set_all(timer("a", 30), timer("b", 40))
    assert queue.pop(END_OF_TIME) is not None
    queue.set(timer("c", 10), expires_us=END)
    assert queue.pop(END_OF_TIME) == timer("c", 10)
    assert queue.watermark_us == 30  # never back
    assert fired(queue) == [("b", "", 40)]


def test_a_looping_timer_ends_with_its_window() -> None:
    queue = set_all(timer("loop", 30))
    times = []
    while (due := queue.pop(END_OF_TIME)) is not None:
        times.append(due.fires_us)
        queue.set(timer("loop", due.fires_us + 30), expires_us=END)
    assert times == [30, 60, 90, END]  # what would fire after the end fires at the end


def test_what_lies_behind_the_end_of_the_window_fires_at_the_end() -> None:
    queue = set_all(timer("after", END + 50), timer("at", END), timer("before", END - 1))
    assert queue.hold_us() == END - 1
    assert fired(queue) == [("before", "", END - 1), ("after", "", END), ("at", "", END)]


def test_the_end_drops_what_the_callback_had_set_before() -> None:
    """It is as if it fired after the end, where nothing does."""
    queue = set_all(timer("end", END), timer("other", END, PROCESSING))
    assert queue.pop(END_OF_TIME) == timer("end", END)
    queue.set(timer("other", 5), expires_us=END)
    assert queue.pop(END_OF_TIME) == timer("other", 5)
    for late in (END, END + 1):
        queue.set(timer("other", late), expires_us=END)
        assert queue.pop(END_OF_TIME) is None


def test_each_window_has_its_own_end() -> None:
    queue = TimerQueue()
    for window, end in (("early", 10), ("late", 20)):
        queue.set(Timer(TimerId("a", "", window), EVENT, 30, 30), expires_us=end)
    first, second = queue.pop(END_OF_TIME), queue.pop(END_OF_TIME)
    assert first is not None
    assert second is not None
    assert (first.id.window, first.fires_us) == ("early", 10)
    assert (second.id.window, second.fires_us) == ("late", 20)


def test_processing_time_jumps_when_no_event_time_timer_is_left() -> None:
    queue = set_all(timer("p", 1, PROCESSING), timer("e", 50), timer("q", 10**15, PROCESSING))
    first = queue.pop(END_OF_TIME)
    assert first == timer("e", 50)
    assert queue.watermark_us == 50
    assert [family for family, _, _ in fired(queue)] == ["p", "q"]


def test_event_time_continues_before_the_next_processing_time_timer() -> None:
    queue = set_all(timer("p", 1, PROCESSING), timer("q", 2, PROCESSING))
    assert queue.pop(END_OF_TIME) == timer("p", 1, PROCESSING)
    queue.set(timer("e", 60), expires_us=END)
    assert [family for family, _, _ in fired(queue)] == ["e", "q"]


@pytest.mark.parametrize("domain", [EVENT, PROCESSING])
def test_a_callback_that_polls_is_called_until_it_stops(domain: Domain) -> None:
    queue = set_all(timer("poll", 10, PROCESSING), timer("end", END, EXPIRATION))
    seen = []
    while (due := queue.pop(END_OF_TIME)) is not None:
        seen.append(due.id.family)
        if due.id.family == "poll" and len(seen) < 50:
            # For the present, or for one that another one sets.
            other = timer("for now", 10) if domain is EVENT else timer("poll", 10, PROCESSING)
            queue.set(other, expires_us=END)
        elif due.id.family == "for now":
            queue.set(timer("poll", 10, PROCESSING), expires_us=END)
    assert seen[-2:] == ["poll", "end"]
    assert len(seen) >= 51
    assert queue.set_again >= 49


def test_it_is_interrupted_only_between_timers_and_forgets_none() -> None:
    queue = set_all(timer("e", 5), timer("p", 10, PROCESSING))
    less = uninterrupted(END_OF_TIME)
    assert [queue.pop(END_OF_TIME) for _ in range(2)] == [timer("e", 5), timer("p", 10, PROCESSING)]
    queue.set(timer("e", 5), expires_us=END)
    queue.set(timer("p", 10, PROCESSING), expires_us=END)
    assert queue.would_leave(Instant(MAX_US, 0))
    assert queue.pop(less) is None
    assert queue.remaining() == [timer("e", 5), timer("p", 10, PROCESSING)]


def test_a_looping_timer_of_processing_time_fires_once_at_the_end_of_a_drain() -> None:
    dropped = DroppedTimers()
    queue = set_all(timer("loop", 10, PROCESSING), dropped=dropped)
    times = []
    for to in (Instant(0, 15), Instant(0, 24), Instant(MAX_US, 24), END_OF_TIME):
        while (due := queue.pop(to)) is not None:
            times.append(due.fires_us)
            for tag in ("", str(due.fires_us)):  # one that is ever another one ends, too
                again = Timer(TimerId("loop", tag, "window"), PROCESSING, due.fires_us + 10, 0)
                queue.set(again, expires_us=MAX_US)
    assert times == [10, 20, 20, 30, 30]
    assert not queue
    assert (dropped.timers, dropped.keys) == (4, 1)


def test_timers_that_set_one_another_fire_once_at_the_end_of_a_drain() -> None:
    """A timer of event time for the present sets one of processing time, and that one the first."""
    queue = set_all(timer("e", 5), dropped=DroppedTimers())
    seen = []
    while (due := queue.pop(END_OF_TIME)) is not None:
        seen.append(due.id.family)
        other = timer("p", 10, PROCESSING) if due.id.family == "e" else timer("e", 5)
        queue.set(other, expires_us=END)
    assert seen == ["e", "p", "e"]


def test_a_timer_that_waits_fires_at_the_end_of_a_drain_once_even_if_it_is_moved() -> None:
    queue = set_all(timer("p", 1, PROCESSING), timer("q", 2, PROCESSING), dropped=DroppedTimers())
    assert queue.pop(END_OF_TIME) == timer("p", 1, PROCESSING)
    queue.set(timer("q", 70, PROCESSING), expires_us=END)
    queue.set(timer("p", 80, PROCESSING), expires_us=END)
    assert fired(queue) == [("q", "", 70)]


def test_the_end_of_a_drain_is_not_interrupted_once_the_clock_has_jumped() -> None:
    queue = set_all(timer("e", 5), timer("p", 10, PROCESSING), dropped=DroppedTimers())
    less = uninterrupted(END_OF_TIME)
    assert queue.pop(less) is None
    assert queue.pop(END_OF_TIME) == timer("e", 5)
    assert queue.pop(END_OF_TIME) == timer("p", 10, PROCESSING)
    queue.set(timer("e", 5), expires_us=END)
    assert not queue.would_leave(less)
    assert queue.pop(less) == timer("e", 5)
    queue.restart()
    queue.set(timer("p", 10, PROCESSING), expires_us=END)
    assert queue.pop(less) is None


def test_until_all_elements_of_a_key_have_come_no_timer_polls_at_the_end() -> None:
    """A timer of event time may stop it."""
    queue = set_all(timer("stop", 50), timer("poll", 10, PROCESSING))
    assert fired(queue, held(END_OF_TIME, 20)) == []
    assert fired(queue, held(END_OF_TIME, MAX_US)) == [("stop", "", 50), ("poll", "", 10)]
    assert held(Instant(30, 7), 20) == Instant(20, 7)


def test_windows_expire_when_nothing_else_is_left() -> None:
    queue = set_all(
        timer("gone", END, EXPIRATION), timer("end", END), timer("p", 10**15, PROCESSING)
    )
    assert [family for family, _, _ in fired(queue)] == ["end", "p", "gone"]


def test_the_hold_is_the_earliest_of_all() -> None:
    queue = set_all(timer("a", 30), timer("b", 10**15, PROCESSING, hold_us=7), timer("c", 5))
    assert queue.hold_us() == 5
    assert queue.pop(END_OF_TIME) == timer("c", 5)
    assert queue.hold_us() == 7
    queue.clear(TimerId("b", "", "window"))
    assert queue.hold_us() == 30
    queue.pop(END_OF_TIME)
    assert queue.hold_us() is None


def test_setting_one_timer_for_each_element_takes_no_memory() -> None:
    queue = TimerQueue()
    for number in range(10_000):
        queue.set(timer("same", 50), expires_us=END)
        queue.set(timer("later", number, PROCESSING), expires_us=END)
    assert sum(map(len, queue._due.values())) < 200
    assert fired(queue) == [("same", "", 50), ("later", "", 9_999)]


def test_whoever_remembers_a_setting_sees_what_makes_it_void() -> None:
    queue = TimerQueue()
    changes = [queue.changes]

    def has_changed() -> bool:
        changes.append(queue.changes)
        return changes[-1] > changes[-2]

    queue.set(timer("a", 3), expires_us=END)
    assert has_changed()
    queue.set(timer("a", 3), expires_us=END)
    assert not has_changed()
    queue.clear(TimerId("a", "", "window"))
    assert has_changed()
    queue.set(timer("b", 3), expires_us=END)
    assert has_changed()
    assert queue.pop(END_OF_TIME) is not None
    assert has_changed()
    queue.restart()
    assert has_changed()


def test_the_next_key_starts_again() -> None:
    queue = set_all(timer("a", 30), timer("b", 40))
    assert queue.pop(END_OF_TIME) is not None
    queue.restart()
    assert (len(queue), queue.watermark_us) == (0, None)
    assert queue.pop(END_OF_TIME) is None
    queue.restart()
    assert queue.watermark_us is None
    queue.set(timer("a", 45), expires_us=END)
    queue.set(timer("b", 60), expires_us=END)
    assert fired(queue) == [("a", "", 45), ("b", "", 60)]


def test_time_advances_no_further_than_it_may() -> None:
    queue = set_all(timer("a", 3), timer("b", 7), timer("p", 5, PROCESSING))
    queue.set(Timer(TimerId("e", "", "other window"), EXPIRATION, 6, 6), expires_us=6)
    assert fired(queue, Instant(watermark_us=2, clock_us=4)) == []
    assert queue.watermark_us == 2
    assert fired(queue, Instant(watermark_us=3, clock_us=4)) == [("a", "", 3)]
    assert fired(queue, Instant(watermark_us=3, clock_us=5)) == [("p", "", 5)]
    assert fired(queue, Instant(watermark_us=6, clock_us=5)) == [("e", "", 6)]
    assert [each.id.family for each in queue.remaining()] == ["b"]
    assert queue.watermark_us == 6
    assert fired(queue) == [("b", "", 7)]


def test_time_never_goes_back() -> None:
    queue = set_all(timer("a", 30))
    assert queue.pop(Instant(watermark_us=20, clock_us=0)) is None
    assert queue.pop(Instant(watermark_us=10, clock_us=0)) is None
    assert queue.watermark_us == 20


def test_what_a_callback_sets_fires_in_the_same_advance_if_it_is_due() -> None:
    queue = set_all(timer("a", 3))
    to = Instant(watermark_us=5, clock_us=0)
    assert queue.pop(to) == timer("a", 3)
    for each in (timer("b", 5), timer("c", 6), timer("d", 1)):
        queue.set(each, expires_us=END)
    assert fired(queue, to) == [("d", "", 1), ("b", "", 5)]
    assert queue.remaining() == [timer("c", 6)]


def test_timers_remain_in_the_order_in_which_they_were_set() -> None:
    queue = set_all(timer("b", 9), timer("a", 9), timer("c", 1), timer("b", 8), timer("d", 9))
    assert queue.pop(Instant(watermark_us=1, clock_us=0)) == timer("c", 1)
    assert [each.id.family for each in queue.remaining()] == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("window", "lateness_us", "expiry"),
    [
        (IntervalWindow(0, 10), 0, 10_000_000),
        (IntervalWindow(0, 10), 5_000_000, 15_000_000),
        (IntervalWindow(-20, -10), 0, -10_000_000 + 1000),  # Beam's wire rounds towards zero
        (GlobalWindow(), 0, 9_223_371_950_454_776_000),  # its end in the model, and in Java
        (GlobalWindow(), 1 << 62, END_OF_TIME.watermark_us),
    ],
)
def test_a_window_is_over_a_millisecond_behind_its_last(
    window: IntervalWindow, lateness_us: int, expiry: int
) -> None:
    assert expiry_us(window.max_timestamp().micros, lateness_us) == expiry


def test_times_of_our_days_were_computed_from_the_wall_clock() -> None:
    wall_us, clock_us = 1_700_000_000_000_000, 5_000_000
    assert due_by(clock_us, wall_us + 10, wall_us) == clock_us + 10
    assert due_by(clock_us, 42_000_000, wall_us) == 42_000_000


def test_what_waits_for_the_clock_ends_with_its_window() -> None:
    """Java's ``StatefulDoFnRunner.onTimer`` ignores it: the state of the window is gone."""
    queue = set_all(timer("clock", 50, PROCESSING), timer("", END, EXPIRATION))
    other = Timer(TimerId("clock", "", "other window"), PROCESSING, 50, 50)
    queue.set(other, expires_us=2 * END)
    now = Instant(END, 40)
    assert fired(queue, now) == [("", "", END)]
    queue.set(timer("clock", 60, PROCESSING), expires_us=END)  # by ``on_window_expiration``
    assert queue.remaining() == [other]


def test_what_waits_for_the_clock_fires_before_its_window_ends() -> None:
    queue = set_all(timer("", END, EXPIRATION), timer("clock", 50, PROCESSING))
    assert fired(queue, Instant(END, 50)) == [("clock", "", 50), ("", "", END)]


def test_a_clock_that_repeats_what_was_recorded() -> None:
    clock_us, wall_us = 1_700_000_000_000_000, 1_700_000_060_000_000
    assert due_by(clock_us, clock_us + 10_000_000, wall_us) == clock_us + 10_000_000
    assert due_by(clock_us, wall_us + 10_000_000, wall_us) == clock_us + 10_000_000
    assert due_by(clock_us, wall_us - 10, wall_us) == clock_us - 10
