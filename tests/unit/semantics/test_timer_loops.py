"""A timer that always sets itself again is noticed, once all input of its key is there."""

from beam_spark_runner.semantics.timer_loops import MAX_SET_AGAIN, PATIENCE_US, TimerLoops
from beam_spark_runner.semantics.timers import (
    END_OF_TIME,
    Domain,
    Instant,
    Timer,
    TimerId,
    TimerQueue,
)

FAR_US = 1 << 60
TICK = TimerId("tick", "", "window")


def tick(at_us: int, tag: str = "") -> Timer:
    return Timer(TICK._replace(tag=tag), Domain.EVENT_TIME, at_us, at_us)


def fire(queue: TimerQueue, to: Instant, loops: TimerLoops, firings: int) -> None:
    """Fire timers, of which each sets itself again."""
    for _ in range(firings):
        timer = queue.pop(to)
        assert timer is not None
        loops.fired(timer.id.family, queue.set_again)
        queue.set(timer._replace(fires_us=timer.fires_us + 1), expires_us=FAR_US)


class Said:
    def __init__(self) -> None:
        self.now_us = 0
        self.families: list[str] = []
        self.paused_s: list[float] = []
        self.loops = TimerLoops(lambda: self.now_us, self.families.append, self.paused_s.append)


def test_it_is_said_once_after_many_firings_and_a_minute() -> None:
    said, queue = Said(), TimerQueue()
    queue.set(tick(1), expires_us=FAR_US)
    fire(queue, END_OF_TIME, said.loops, MAX_SET_AGAIN + 1)
    said.now_us = PATIENCE_US - 1
    fire(queue, END_OF_TIME, said.loops, 10)
    assert said.families == []
    said.now_us = PATIENCE_US
    fire(queue, END_OF_TIME, said.loops, 10)
    assert said.families == ["tick"]


def test_timers_that_were_set_before_are_no_loop() -> None:
    queue = TimerQueue()
    for number in range(5):
        queue.set(tick(number, str(number)), expires_us=FAR_US)
    for _ in range(5):
        assert queue.pop(END_OF_TIME) is not None
    assert queue.set_again == 0


def test_before_the_end_of_time_nothing_loops_forever() -> None:
    said, queue = Said(), TimerQueue()
    queue.set(tick(1), expires_us=FAR_US)
    fire(queue, Instant(FAR_US - 1, 0), said.loops, 50)
    assert queue.set_again == 0


def test_the_pauses_between_timers_that_poll_grow_up_to_a_limit() -> None:
    said = Said()
    for set_again in (1, 2, 50, 100, 1_000_000):
        said.loops.polls(set_again)
    assert said.paused_s == [0.0001, 0.0002, 0.005, 0.01, 0.01]


def test_the_next_key_begins_again() -> None:
    said, queue = Said(), TimerQueue()
    for now_us in (0, PATIENCE_US):
        said.now_us = now_us
        queue.restart()
        queue.set(tick(1), expires_us=FAR_US)
        fire(queue, END_OF_TIME, said.loops, MAX_SET_AGAIN + 5)
    assert said.families == []
