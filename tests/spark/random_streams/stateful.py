"""The stateful steps of random pipelines that stream.

What a step gives does not depend on the order of the elements of a bundle.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder, VarIntCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    CombiningValueStateSpec,
    ReadModifyWriteStateSpec,
    SetStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

Numbers = tuple[int, ...]
PAIR = tuple[str, tuple[int, ...]]
AFTER, EVERY, MAX_ROUNDS, ON_CLOCK, MAX_POLLS = 3, 4, 3, 6.5, 3
"""Seconds after the last element; between rounds; how many rounds; of processing time; how often a
timer polls."""


class AtTheEnd(beam.DoFn):  # type: ignore[misc]
    """Gives all numbers of a key and window at its end."""

    KEPT = BagStateSpec("kept", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, Numbers],
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        for number in pair[1]:
            kept.add(number)
        end.set(window.max_timestamp())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[tuple[str, Numbers]]:
        yield key, tuple(sorted(kept.read()))
        kept.clear()


def _latest(times: Iterable[int]) -> int:
    return max(times, default=-(10**15))


class AfterTheLast(beam.DoFn):  # type: ignore[misc]
    """Gives the numbers some time after the latest one.

    After every third number the timer is cleared, until there is a further one.
    """

    KEPT = BagStateSpec("kept", VarIntCoder())
    LATEST = CombiningValueStateSpec("latest", _latest)
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, Numbers],
        window: Any = beam.DoFn.WindowParam,
        at: Any = beam.DoFn.TimestampParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        latest: Any = beam.DoFn.StateParam(LATEST),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        kept.add(pair[1][0] if pair[1] else 0)
        latest.add(at.micros)
        if len(list(kept.read())) % 3 == 0:
            due.clear()
            return
        due.set(_within(window, latest.read() + AFTER * 1_000_000))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        latest: Any = beam.DoFn.StateParam(LATEST),
    ) -> Iterator[tuple[str, Numbers]]:
        yield key, tuple(sorted(kept.read()))
        kept.clear()
        latest.clear()


class InRounds(beam.DoFn):  # type: ignore[misc]
    """A timer that sets itself again: gives what is new in each round, and how many there were."""

    KEPT = SetStateSpec("kept", VarIntCoder())
    FIRST = ReadModifyWriteStateSpec("first", VarIntCoder())
    ROUNDS = CombiningValueStateSpec("rounds", sum)
    EACH = TimerSpec("each", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, Numbers],
        window: Any = beam.DoFn.WindowParam,
        at: Any = beam.DoFn.TimestampParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        first: Any = beam.DoFn.StateParam(FIRST),
        rounds: Any = beam.DoFn.StateParam(ROUNDS),
        each: Any = beam.DoFn.TimerParam(EACH),
    ) -> None:
        for number in pair[1]:
            kept.add(number)
        if not rounds.read():
            before = first.read()
            start = at.micros if before is None else min(before, at.micros)
            first.write(start)
            each.set(_within(window, start + EVERY * 1_000_000))

    @on_timer(EACH)  # type: ignore[untyped-decorator]
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        at: Any = beam.DoFn.TimestampParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        first: Any = beam.DoFn.StateParam(FIRST),
        rounds: Any = beam.DoFn.StateParam(ROUNDS),
        each: Any = beam.DoFn.TimerParam(EACH),
    ) -> Iterator[tuple[str, Numbers]]:
        yield key, (*sorted(kept.read()), -rounds.read() - 1)
        kept.clear()
        rounds.add(1)
        last = window.max_timestamp().micros // 1000  # the wire knows milliseconds
        if rounds.read() < MAX_ROUNDS and at.micros // 1000 < last:
            each.set(_within(window, at.micros + EVERY * 1_000_000))
        else:
            rounds.clear()
            first.clear()


def _within(window: Any, micros: int) -> Timestamp:
    return min(Timestamp(micros=micros), window.max_timestamp())


class OnTheClock(beam.DoFn):  # type: ignore[misc]
    """Gives the numbers some processing time after the last one came."""

    KEPT = BagStateSpec("kept", VarIntCoder())
    DUE = TimerSpec("due", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[str, Numbers],
        kept: Any = beam.DoFn.StateParam(KEPT),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        for number in pair[1]:
            kept.add(number)
        due.set(Timestamp(time.time() + ON_CLOCK))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def give(
        self,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
    ) -> Iterator[WindowedValue]:
        # The SDK would give it the time of the clock, as if that were event time.
        pair = key, tuple(sorted(kept.read()))
        yield WindowedValue(pair, window.max_timestamp(), (window,))
        kept.clear()


class Polling(beam.DoFn):  # type: ignore[misc]
    """Asks some times, as if for a result of another thread, before it gives the numbers.

    Elements that come meanwhile do not put the next time off.
    """

    KEPT = BagStateSpec("kept", VarIntCoder())
    ASKED = CombiningValueStateSpec("asked", sum)
    WAITS = ReadModifyWriteStateSpec("waits", VarIntCoder())
    AGAIN = TimerSpec("again", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[str, Numbers],
        kept: Any = beam.DoFn.StateParam(KEPT),
        waits: Any = beam.DoFn.StateParam(WAITS),
        again: Any = beam.DoFn.TimerParam(AGAIN),
    ) -> None:
        for number in pair[1]:
            kept.add(number)
        if not waits.read():
            waits.write(1)
            again.set(Timestamp(time.time() + ON_CLOCK))

    @on_timer(AGAIN)  # type: ignore[untyped-decorator]
    def ask(
        self,
        key: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        asked: Any = beam.DoFn.StateParam(ASKED),
        waits: Any = beam.DoFn.StateParam(WAITS),
        again: Any = beam.DoFn.TimerParam(AGAIN),
    ) -> Iterator[WindowedValue]:
        asked.add(1)
        if asked.read() < MAX_POLLS:
            again.set(Timestamp(time.time() + ON_CLOCK))
            return
        pair = key, tuple(sorted(kept.read()))
        yield WindowedValue(pair, window.max_timestamp(), (window,))
        kept.clear()
        asked.clear()
        waits.clear()


class Boxes(AtTheEnd):
    """The same for elements in objects of classes of the main module, which state keeps, too."""

    KEPT = BagStateSpec("kept", FastPrimitivesCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, Any],
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        kept.add(("nested", [pair[1]]))
        end.set(window.max_timestamp())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[tuple[str, list[Any]]]:
        yield key, [box for _, boxes in kept.read() for box in boxes]
        kept.clear()


class InOrder(beam.DoFn):  # type: ignore[misc]
    """Passes on what comes in the order of time, and fails for what does not."""

    LATEST = ReadModifyWriteStateSpec("latest", VarIntCoder())

    def process(
        self,
        pair: tuple[str, Numbers],
        at: Any = beam.DoFn.TimestampParam,
        latest: Any = beam.DoFn.StateParam(LATEST),
    ) -> Iterator[tuple[str, Numbers]]:
        before = latest.read()
        assert before is None or before <= at.micros, f"{at} after {before}"
        latest.write(at.micros)
        yield pair


STATEFUL: dict[str, type[beam.DoFn]] = {
    "at the end": AtTheEnd,
    "after the last": AfterTheLast,
    "in rounds": InRounds,
    "on the clock": OnTheClock,
    "polling": Polling,
}
