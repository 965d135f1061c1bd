"""The steps of random pipelines that stream.

Every collection holds pairs: a key, and the numbers of the elements that this one is made of,
sorted.
What a step gives does not depend on the order of the elements of a bundle.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsList
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

from tests.spark.random_streams.windowings import Windowing

Numbers = tuple[int, ...]
PAIR = tuple[str, tuple[int, ...]]
SEEN_ASIDE = 1_000_000
"""Added to numbers that come from a side input."""
AFTER, EVERY, MOST_ROUNDS, ON_CLOCK = 3, 4, 3, 6.5
"""Seconds after the last element; between rounds; how many rounds; of processing time."""


class Concat(beam.CombineFn):  # type: ignore[misc]
    """All numbers."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], value: Numbers) -> list[int]:
        return [*accumulator, *value]

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        return [number for each in accumulators for number in each]

    def extract_output(self, accumulator: list[int]) -> Numbers:
        return tuple(sorted(accumulator))


class _Group(beam.PTransform):  # type: ignore[misc]
    def expand(self, pairs: Any) -> Any:
        return pairs | beam.GroupByKey() | beam.MapTuple(_flat).with_output_types(PAIR)


def _flat(key: str, values: Iterable[Numbers]) -> tuple[str, Numbers]:
    return key, tuple(sorted(number for each in values for number in each))


class _All(beam.PTransform):  # type: ignore[misc]
    def expand(self, pairs: Any) -> Any:
        values = pairs | beam.Values() | beam.CombineGlobally(Concat()).without_defaults()
        return values | beam.Map(lambda numbers: ("all", numbers)).with_output_types(PAIR)


class _LookUp(beam.PTransform):  # type: ignore[misc]
    def __init__(self, windowing: Windowing, side: Any) -> None:
        super().__init__()
        self._windowing, self._side = windowing, side

    def expand(self, pairs: Any) -> Any:
        side = self._side | "aside" >> self._windowing.transform()
        return pairs | beam.Map(look_up, AsList(side)).with_output_types(PAIR)


def look_up(pair: tuple[str, Numbers], side: list[tuple[str, Numbers]]) -> tuple[str, Numbers]:
    """Return a pair with all that the side input has."""
    beside = [number + SEEN_ASIDE for _, numbers in side for number in numbers]
    return pair[0], tuple(sorted([*pair[1], *beside]))


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
        if rounds.read() < MOST_ROUNDS and at.micros // 1000 < last:
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


STATEFUL: dict[str, type[beam.DoFn]] = {
    "at the end": AtTheEnd,
    "after the last": AfterTheLast,
    "in rounds": InRounds,
    "on the clock": OnTheClock,
}
GROUPINGS = ("group", "concat", "concat all")


def transform(kind: str, args: tuple[Any, ...], side: Any) -> Any:
    """Return the transform of a step.

    Args:
        kind: "window", "rekey", "reshuffle", "look up", one of ``GROUPINGS``, of ``STATEFUL``.
        args: of the kind.
        side: pairs, for a side input.
    """
    match kind:
        case "window":
            return args[0].transform()
        case "rekey":
            return beam.MapTuple(rekey).with_output_types(PAIR)
        case "reshuffle":
            return beam.Reshuffle()
        case "look up":
            return _LookUp(args[0], side)
        case "group":
            return _Group()
        case "concat":
            return beam.CombinePerKey(Concat()).with_output_types(PAIR)
        case "concat all":
            return _All()
    return beam.ParDo(STATEFUL[kind]()).with_output_types(PAIR)


def rekey(key: str, numbers: Numbers) -> tuple[str, Numbers]:
    """Bring the elements of several keys to one."""
    return ("a" if key in "ab" else key), numbers
