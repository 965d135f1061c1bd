"""Keys that outlive a bundle: what is stored of them, a later bundle finds."""

import contextlib
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, GlobalWindows, IntervalWindow
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import END_OF_TIME, Instant
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.policy import KeyPolicy
from tests.stateful import Remembers
from tests.unit.harness.beam.keyed import Running

SECOND = 1_000_000
WINDOW = (IntervalWindow(0, 10),)


@contextlib.contextmanager
def running_stage(do_fn: beam.DoFn, windows: Any) -> Iterator[Running]:
    running = Running(do_fn, windows)
    running.bundle.finish()
    try:
        yield running
    finally:
        running.bundle.abort()
        running.stage.close()


@pytest.fixture
def running() -> Iterator[Running]:
    with running_stage(Remembers(), FixedWindows(10)) as running:
        yield running


def work(
    running: Running,
    store: MemoryState,
    watermark: int,
    clock: int,
    elements: dict[int, list[int]],
) -> list[Any]:
    """Run a bundle that advances time to a watermark and a clock, in seconds."""
    running.taken.elements.clear()
    to = Instant(watermark * SECOND, clock * SECOND)
    running.bundle = running.start(KeyPolicy(to, store))
    for key, values in elements.items():
        running.key(key, values, WINDOW)
    running.bundle.finish()
    return running.out


def new_store() -> MemoryState:
    return MemoryState(lambda _, data: 1)


def test_a_later_bundle_finds_all_kinds_of_state(running: Running) -> None:
    store = new_store()
    assert work(running, store, 0, 0, {1: [3]}) == [(1, None, [3], 3, [1], [3])]
    assert work(running, store, 0, 0, {2: [7]}) == [(2, None, [7], 7, [1], [7])]
    assert work(running, store, 0, 0, {1: [2, 5]}) == [
        (1, 3, [2, 3], 5, [0, 1], [2, 3]),
        (1, 2, [2, 3, 5], 10, [0, 1], [2, 3, 5]),
    ]


def test_what_is_cleared_is_not_found(running: Running) -> None:
    store = new_store()
    work(running, store, 0, 0, {1: [3, 0]})
    assert work(running, store, 20, 900, {1: [4]})[0] == (1, None, [0, 3, 4], 7, [0, 1], [0, 3, 4])


def test_timers_fire_in_the_bundle_in_which_they_are_due(running: Running) -> None:
    store = new_store()
    assert work(running, store, 2, 0, {1: [3], 2: [4]})[2:] == []
    assert work(running, store, 3, 0, {2: [5]})[1:] == []
    # A timer that was set again is another one; the clock of key 2 has come to 500 s.
    assert work(running, store, 5, 500, {2: [1]})[1:] == [("event", 2, 1, "tag", 10), ("clock", 2)]
    assert work(running, store, 5, 0, {1: [9]})[1:] == []
    assert work(running, store, 9, 0, {1: [9]})[1:] == [("event", 1, 9, "tag", 21)]


def test_a_bundle_that_ends_time_fires_everything(running: Running) -> None:
    store = new_store()
    work(running, store, 0, 0, {1: [3]})
    running.taken.elements.clear()
    running.bundle = running.start(KeyPolicy(END_OF_TIME, store))
    running.key(1, [4], WINDOW)
    running.bundle.finish()
    assert running.out[1:] == [("event", 1, 4, "tag", 7), ("clock", 1)]


def test_a_batch_bundle_sees_and_leaves_nothing(running: Running) -> None:
    store = new_store()
    work(running, store, 0, 0, {1: [3]})
    for _ in range(2):
        running.taken.elements.clear()
        running.bundle = running.start()
        running.key(1, [4], WINDOW)
        running.bundle.finish()
        assert running.out[0] == (1, None, [4], 4, [0], [4])
    assert work(running, store, 0, 0, {1: [5]})[0] == (1, 3, [3, 5], 8, [1], [3, 5])


def test_state_is_dropped_once_its_window_is_over(running: Running) -> None:
    store = new_store()
    work(running, store, 0, 0, {1: [3]})
    work(running, store, 11, 900, {1: [4]})
    assert work(running, store, 0, 0, {1: [5]})[0] == (1, None, [5], 5, [1], [5])


def test_elements_in_windows_that_are_over_are_dropped(running: Running) -> None:
    store = new_store()
    running.taken.elements.clear()
    to = Instant(12 * SECOND, 0)
    policy = KeyPolicy(to, store, watermark_us=11 * SECOND)
    running.bundle = running.start(policy)
    running.key(1, [3], WINDOW)
    running.key(2, [4], (IntervalWindow(0, 10), IntervalWindow(10, 20)))
    running.bundle.finish()
    assert running.out == [(2, None, [4], 4, [0], [4]), ("event", 2, 4, "tag", 4)]
    assert policy.late.dropped == 2


class Chain(beam.DoFn):  # type: ignore[misc]
    """Sets timers for some seconds; one that fires at an even second sets the next one."""

    DUE = TimerSpec("due", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[int, int],
        due: Any = beam.DoFn.TimerParam(DUE),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
    ) -> None:
        due.set(Timestamp(pair[1]), dynamic_timer_tag=str(pair[1]))
        clock.set(Timestamp(pair[1]))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def fire(
        self,
        time: Any = beam.DoFn.TimestampParam,
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> Iterator[int]:
        yield int(time)
        if int(time) % 2 == 0:
            due.set(Timestamp(int(time) + 1), dynamic_timer_tag=str(int(time) + 1))

    @on_timer(CLOCK)  # type: ignore[untyped-decorator]
    def tick(self) -> Iterator[str]:
        yield "clock"


class Atomic(Chain):
    use_splittable_timers = False


def fired(
    running: Running, store: MemoryState, watermark: int, clock: int = 0
) -> tuple[list[Any], bool]:
    """Fire what is due of key 1, until it is interrupted; return whether it was."""
    interruption = Interruption(lambda: 1, 0, 1)
    running.taken.elements.clear()
    to = Instant(watermark * SECOND, clock * SECOND)
    running.bundle = running.start(KeyPolicy(to, store, interruption=interruption))
    running.bundle.begin_key(VarIntCoder().get_impl().encode_nested(1))
    running.bundle.advance_key()
    running.bundle.finish()
    return running.out, interruption.was_interrupted


def test_firing_is_interrupted_and_continues() -> None:
    store = new_store()
    with running_stage(Chain(), GlobalWindows()) as running:
        work(running, store, 0, 0, {1: [2, 4, 5]})
        assert fired(running, store, 4) == ([2], True)
        assert fired(running, store, 4) == ([3], True)  # which the first one has set
        assert fired(running, store, 4) == ([4], False)
        assert fired(running, store, 5) == ([5], False)
        assert fired(running, store, 9) == ([], False)


class Sums(beam.DoFn):  # type: ignore[misc]
    """Has state and no timers."""

    SUM = CombiningValueStateSpec("sum", sum)

    def process(self, pair: tuple[int, int], total: Any = beam.DoFn.StateParam(SUM)) -> None:
        total.add(pair[1])


def test_the_end_of_windows_is_interrupted() -> None:
    """What is stored of windows that have expired is deleted, without any timer of the DoFn."""
    store = new_store()
    with running_stage(Sums(), FixedWindows(10)) as numbers:
        numbers.bundle = numbers.start(KeyPolicy(Instant(0, 0), store))
        numbers.key(1, [3], (IntervalWindow(0, 10), IntervalWindow(10, 20)))
        numbers.bundle.finish()
        assert fired(numbers, store, 30) == ([], True)
        assert fired(numbers, store, 30) == ([], False)
    assert not any(store._keys.values())


def test_what_waits_for_a_clock_is_not_interrupted() -> None:
    store = new_store()
    with running_stage(Chain(), GlobalWindows()) as running:
        work(running, store, 0, 0, {1: [1, 3]})
        assert fired(running, store, 9, clock=9) == ([1, "clock"], True)
        assert fired(running, store, 9, clock=9) == ([3], False)


def test_a_do_fn_may_ask_for_all_timers_at_once() -> None:
    store = new_store()
    with running_stage(Atomic(), GlobalWindows()) as running:
        work(running, store, 0, 0, {1: [1, 3]})
        assert fired(running, store, 9) == ([1, 3], False)


class Resets(Chain):
    """Sets the timers of tags, or clears them: an element has a tag and a second, or 0."""

    def process(
        self,
        pair: tuple[int, int],
        due: Any = beam.DoFn.TimerParam(Chain.DUE),
        clock: Any = beam.DoFn.TimerParam(Chain.CLOCK),
    ) -> None:
        tag, second = divmod(pair[1], 100)
        if second:
            due.set(Timestamp(second), dynamic_timer_tag=str(tag))
        else:
            due.clear(dynamic_timer_tag=str(tag))


def test_timers_that_are_due_are_set_again_and_cleared_before_they_fire() -> None:
    store = new_store()
    with running_stage(Resets(), FixedWindows(10)) as running:
        work(running, store, 0, 0, {1: [101, 203, 305, 407]})
        assert fired(running, store, 5) == ([1], True)
        assert work(running, store, 0, 0, {1: [209, 300]}) == []
        assert fired(running, store, 8) == ([7], False)
        assert fired(running, store, 9) == ([9], False)
