"""Which timer of a key fires next, whatever elements and callbacks set and clear."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.semantics.timers import (
    Domain,
    Timer,
    TimerId,
    TimerQueue,
    expiry_us,
)

EVENT, PROCESSING, EXPIRATION = Domain
END = 100  # of the only window, where nothing else is said


def timer(
    family: str, fires_us: int, domain: Domain = EVENT, tag: str = "", hold_us: int | None = None
) -> Timer:
    hold_us = fires_us if hold_us is None else hold_us
    return Timer(TimerId(family, tag, "window"), domain, fires_us, hold_us)


def set_all(*timers: Timer) -> TimerQueue:
    queue = TimerQueue()
    for each in timers:
        queue.set(each, expires_us=END)
    return queue


def fired(queue: TimerQueue) -> list[tuple[str, str, int]]:
    found = []
    while (due := queue.pop()) is not None:
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


def test_a_cleared_timer_never_fires() -> None:
    queue = set_all(timer("a", 3), timer("b", 4))
    queue.clear(TimerId("a", "", "window"))
    queue.clear(TimerId("never set", "", "window"))
    assert fired(queue) == [("b", "", 4)]


def test_cleared_by_the_callback_of_a_timer_that_is_due_at_the_same_moment() -> None:
    queue = set_all(timer("a", 3), timer("b", 3))
    first = queue.pop()
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
    assert queue.pop() is not None
    queue.set(timer("c", 10), expires_us=END)
    assert queue.pop() == timer("c", 10)
    assert queue.watermark_us == 30  # never back
    assert fired(queue) == [("b", "", 40)]


def test_a_looping_timer_ends_with_its_window() -> None:
    queue = set_all(timer("loop", 30))
    times = []
    while (due := queue.pop()) is not None:
        times.append(due.fires_us)
        queue.set(timer("loop", due.fires_us + 30), expires_us=END)
    assert times == [30, 60, 90, END]  # what would fire behind the end fires at the end


def test_what_lies_behind_the_end_of_the_window_fires_at_the_end() -> None:
    queue = set_all(timer("behind", END + 50), timer("at", END), timer("before", END - 1))
    assert queue.hold_us() == END - 1
    assert fired(queue) == [("before", "", END - 1), ("behind", "", END), ("at", "", END)]


def test_the_end_drops_what_the_callback_had_set_before() -> None:
    """It is as if it fired behind the end, where nothing does."""
    queue = set_all(timer("end", END), timer("other", END, PROCESSING))
    assert queue.pop() == timer("end", END)
    queue.set(timer("other", 5), expires_us=END)
    assert queue.pop() == timer("other", 5)
    for late in (END, END + 1):
        queue.set(timer("other", late), expires_us=END)
        assert queue.pop() is None


def test_each_window_has_its_own_end() -> None:
    queue = TimerQueue()
    for window, end in (("early", 10), ("late", 20)):
        queue.set(Timer(TimerId("a", "", window), EVENT, 30, 30), expires_us=end)
    assert [(due.id.window, due.fires_us) for due in (queue.pop(), queue.pop()) if due] == [
        ("early", 10),
        ("late", 20),
    ]


def test_processing_time_jumps_when_no_event_time_timer_is_left() -> None:
    queue = set_all(timer("p", 1, PROCESSING), timer("e", 50), timer("q", 10**15, PROCESSING))
    assert [family for family, _, _ in fired(queue)] == ["e", "p", "q"]
    assert queue.watermark_us == 50


def test_event_time_goes_on_before_the_next_processing_time_timer() -> None:
    queue = set_all(timer("p", 1, PROCESSING), timer("q", 2, PROCESSING))
    assert queue.pop() == timer("p", 1, PROCESSING)
    queue.set(timer("e", 60), expires_us=END)
    assert [family for family, _, _ in fired(queue)] == ["e", "q"]


def test_windows_expire_when_nothing_else_is_left() -> None:
    queue = set_all(
        timer("gone", END, EXPIRATION), timer("end", END), timer("p", 10**15, PROCESSING)
    )
    assert [family for family, _, _ in fired(queue)] == ["end", "p", "gone"]


def test_the_hold_is_the_earliest_of_all() -> None:
    queue = set_all(timer("a", 30), timer("b", 10**15, PROCESSING, hold_us=7), timer("c", 5))
    assert queue.hold_us() == 5
    assert queue.pop() == timer("c", 5)
    assert queue.hold_us() == 7
    queue.clear(TimerId("b", "", "window"))
    assert queue.hold_us() == 30
    queue.pop()
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
    assert queue.pop() is not None
    assert has_changed()
    queue.restart()
    assert has_changed()


def test_the_next_key_starts_anew() -> None:
    queue = set_all(timer("a", 30), timer("b", 40))
    assert queue.pop() is not None
    queue.restart()
    assert (len(queue), queue.pop(), queue.watermark_us) == (0, None, None)
    queue.set(timer("a", 45), expires_us=END)
    queue.set(timer("b", 60), expires_us=END)
    assert fired(queue) == [("a", "", 45), ("b", "", 60)]


@pytest.mark.parametrize(
    ("window", "lateness_us", "expiry"),
    [
        (IntervalWindow(0, 10), 0, 10_000_000),
        (IntervalWindow(0, 10), 5_000_000, 15_000_000),
        (IntervalWindow(-20, -10), 0, -10_000_000 + 1000),  # Beam's wire rounds towards zero
        (GlobalWindow(), 0, 9_223_371_950_454_775_000),
    ],
)
def test_a_window_is_over_a_millisecond_behind_its_last(
    window: IntervalWindow, lateness_us: int, expiry: int
) -> None:
    assert expiry_us(window.max_timestamp().micros, lateness_us) == expiry


class Act(NamedTuple):
    """What user code does: sets a timer, or clears it (``fires_us`` is None)."""

    family: str
    tag: str
    domain: Domain
    fires_us: int | None


ACTS = st.builds(
    Act,
    st.sampled_from("ab"),
    st.sampled_from(["", "x"]),
    st.sampled_from([EVENT, PROCESSING]),
    st.none() | st.integers(-5, 12),
)
SCRIPTS = st.lists(st.lists(ACTS, max_size=4), min_size=1, max_size=12)
LIMIT = 8  # the window's end, which some timers lie behind


class Model:
    """All settings that are valid, in a list that is looked through each time."""

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.live: list[tuple[Domain, int, str, str]] = []

    def act(self, act: Act) -> None:
        same = [each for each in self.live if each[2:] == (act.family, act.tag)]
        if act.fires_us is None:
            self.live = [each for each in self.live if each not in same]
            return
        time = act.fires_us
        if act.domain is EVENT:
            if time >= LIMIT and self.watermark is not None and self.watermark >= LIMIT:
                self.live = [each for each in self.live if each not in same]
                return
            time = min(time, LIMIT)
        if [each[:2] for each in same] == [(act.domain, time)]:
            return
        self.live = [each for each in self.live if each not in same]
        self.live.append((act.domain, time, act.family, act.tag))

    def pop(self) -> tuple[Domain, int, str, str] | None:
        order = list(Domain)
        if not self.live:
            return None
        first = min(self.live, key=lambda each: (order.index(each[0]), each[1]))
        self.live.remove(first)
        if first[0] is EVENT:
            self.watermark = max(first[1], -1000 if self.watermark is None else self.watermark)
        return first


@given(SCRIPTS)
def test_any_script_of_elements_and_callbacks(script: Sequence[Sequence[Act]]) -> None:
    """The first acts are those of the elements, the next ones those of each callback in turn."""
    queue, model = TimerQueue(), Model()
    last_watermark = -1000
    turns = iter(script)
    while True:
        for act in next(turns, ()):
            model.act(act)
            id_ = TimerId(act.family, act.tag, "window")
            if act.fires_us is None:
                queue.clear(id_)
            else:
                queue.set(Timer(id_, act.domain, act.fires_us, act.fires_us), expires_us=LIMIT)
        assert len(queue) == len(model.live)
        expected, due = model.pop(), queue.pop()
        if due is None:
            assert expected is None
            break
        assert (due.domain, due.fires_us, due.id.family, due.id.tag) == expected
        if queue.watermark_us is not None:
            assert queue.watermark_us >= last_watermark
            last_watermark = queue.watermark_us
        assert queue.watermark_us == model.watermark
