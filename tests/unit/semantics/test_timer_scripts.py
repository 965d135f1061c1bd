"""The timers of a key, whatever elements and callbacks set and clear, against a simple model."""

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import (
    END_OF_TIME,
    Domain,
    DroppedTimers,
    Instant,
    Timer,
    TimerId,
    TimerQueue,
)

EVENT, PROCESSING, _ = Domain


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
LIMIT = 8  # the window's end, which some timers lie after


class Model:
    """All settings that are valid, in a list that is looked through each time."""

    def __init__(self, *, drains: bool) -> None:
        self.drains = drains
        self.watermark: int | None = None
        self.live: list[tuple[Domain, int, str, str]] = []
        self.has_jumped = False  # the clock, to its end

    def act(self, act: Act) -> None:
        same = [each for each in self.live if each[2:] == (act.family, act.tag)]
        if act.fires_us is None:
            self.live = [each for each in self.live if each not in same]
            return
        time = act.fires_us
        waits = any(each[0] is PROCESSING for each in same)
        if self.has_jumped and act.domain is PROCESSING and not waits:
            self.live = [each for each in self.live if each not in same]
            return
        if act.domain is EVENT:
            if time >= LIMIT and self.watermark is not None and self.watermark >= LIMIT:
                self.live = [each for each in self.live if each not in same]
                return
            time = min(time, LIMIT)
        if [each[:2] for each in same] == [(act.domain, time)]:
            return
        self.live = [each for each in self.live if each not in same]
        self.live.append((act.domain, time, act.family, act.tag))

    def pop(self, to: Instant) -> tuple[Domain, int, str, str] | None:
        order = list(Domain)
        due = [
            each
            for each in self.live
            if each[1] <= (to.clock_us if each[0] is PROCESSING else to.watermark_us)
        ]
        first = min(due, key=lambda each: (order.index(each[0]), each[1]), default=None)
        if first is not None:
            self.live.remove(first)
        if first is not None and first[0] is PROCESSING and to.clock_us == MAX_US:
            self.has_jumped = self.drains
        if first is None or first[0] is EVENT:
            time = to.watermark_us if first is None else first[1]
            self.watermark = time if self.watermark is None else max(time, self.watermark)
        return first


INSTANTS = st.lists(st.builds(Instant, st.integers(-6, 14), st.integers(-6, 14)), max_size=6)


@given(SCRIPTS, INSTANTS, st.booleans())
def test_any_script_of_elements_and_callbacks(
    script: Sequence[Sequence[Act]], instants: Sequence[Instant], drains: bool
) -> None:
    """The first acts are those of elements, the next ones those of each callback in turn.

    Time advances bit by bit, and then to its end.
    """
    queue = TimerQueue(DroppedTimers() if drains else None)
    model = Model(drains=drains)
    last_watermark = -1000
    turns = iter(script)
    for to in (*instants, END_OF_TIME):
        due: Timer | None = Timer(TimerId("none", "", "window"), EVENT, 0, 0)
        while due is not None:
            for act in next(turns, ()):
                model.act(act)
                id_ = TimerId(act.family, act.tag, "window")
                if act.fires_us is None:
                    queue.clear(id_)
                else:
                    queue.set(Timer(id_, act.domain, act.fires_us, act.fires_us), expires_us=LIMIT)
            assert len(queue) == len(queue.remaining()) == len(model.live)
            expected, due = model.pop(to), queue.pop(to)
            assert expected == (
                None if due is None else (due.domain, due.fires_us, due.id.family, due.id.tag)
            )
            assert queue.watermark_us == model.watermark
            if queue.watermark_us is not None:
                assert queue.watermark_us >= last_watermark
                last_watermark = queue.watermark_us
    assert not queue.remaining()
