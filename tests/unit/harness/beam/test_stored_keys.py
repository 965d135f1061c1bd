"""Keys that outlive a bundle: what is stored of them, a later bundle finds."""

from collections.abc import Iterator
from typing import Any

import pytest
from apache_beam.transforms.window import FixedWindows, IntervalWindow

from beam_spark_runner.semantics.timers import END_OF_TIME, Instant
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.policy import KeyPolicy
from tests.stateful import Remembers
from tests.unit.harness.beam.keyed import Running

SECOND = 1_000_000
WINDOW = (IntervalWindow(0, 10),)


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running(Remembers(), FixedWindows(10))
    running.bundle.finish()
    yield running
    running.bundle.abort()
    running.stage.close()


def work(
    running: Running, store: MemoryState, watermark: int, clock: int, elements: dict[int, list[int]]
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
    running.bundle = running.start(KeyPolicy(to, store, watermark_us=11 * SECOND))
    running.key(1, [3], WINDOW)
    running.key(2, [4], (IntervalWindow(0, 10), IntervalWindow(10, 20)))
    running.bundle.finish()
    assert running.out == [(2, None, [4], 4, [0], [4]), ("event", 2, 4, "tag", 4)]
