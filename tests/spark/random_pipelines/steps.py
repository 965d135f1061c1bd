"""The usual kinds of steps that random pipelines are made of; ``kinds`` has them all.

Each gives the same elements on every runner, whatever the order and the bundles in which a
runner processes them. A collection holds numbers, pairs of numbers, or groups: a number with
an iterable of numbers, as a GroupByKey gives them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.pvalue import AsIter, AsList, AsMultiMap, AsSingleton
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterAny,
    AfterCount,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
)
from apache_beam.utils.windowed_value import WindowedValue

from tests.spark.random_pipelines.chain import Chain

WINDOWINGS: dict[str, Callable[[], beam.WindowInto]] = {
    "global": lambda: beam.WindowInto(GlobalWindows()),
    "fixed 3": lambda: beam.WindowInto(FixedWindows(3)),
    "fixed 10 latest": lambda: beam.WindowInto(
        FixedWindows(10), timestamp_combiner=TimestampCombiner.OUTPUT_AT_LATEST
    ),
    "fixed 10 earliest": lambda: beam.WindowInto(
        FixedWindows(10, 1), timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST
    ),
    "sliding": lambda: beam.WindowInto(SlidingWindows(6, 3)),
    "sessions": lambda: beam.WindowInto(Sessions(4)),
    "early": lambda: beam.WindowInto(
        FixedWindows(20),
        trigger=AfterWatermark(early=AfterCount(2)),
        accumulation_mode=AccumulationMode.DISCARDING,
    ),
    "counting": lambda: beam.WindowInto(
        GlobalWindows(),
        # Beam's own runner drops what no trigger fires, so that one has to.
        trigger=Repeatedly(AfterAny(AfterCount(3), AfterWatermark())),
        accumulation_mode=AccumulationMode.ACCUMULATING,
    ),
}
ASIDE = ("global", "fixed 3", "fixed 10 latest", "sliding")
"""Windowings that a side input may have: one pane per window, and windows that do not merge."""

_PAIR = tuple[int, int]
_GROUP = tuple[int, Iterable[int]]
_MODULUS = 1_000_003  # numbers stay within the 64 bits of Beam's coder


@dataclass(frozen=True)
class Kind:
    """What a step takes and gives; empty: anything, and the same again.

    Attributes:
        make: the transform, from a number of 1 to 5, and what it reads in addition.
        beside: what its second input holds, if it has one, which is a side input.
        joins: the second input is like the first, and the transform takes both.
        grows: results for one element, at most.
        wants_many: with a few elements, it shows little: harnesses begin one by one.
        on_beams: what gives the same on Beam's own runner, if that has no way to give it otherwise.
        is_dealt: it is drawn less often by itself, since each pack has it anyway.
    """

    takes: str
    gives: str
    make: Callable[..., Any]
    beside: str = ""
    joins: bool = False
    grows: int = 1
    wants_many: bool = False
    on_beams: Callable[..., Any] | None = None
    is_dealt: bool = False


def digest(values: Iterable[int]) -> int:
    """Return a number in which each value counts, and their order does not."""
    inside = sorted(values)
    return (sum(n * place for place, n in enumerate(inside, 1)) + len(inside)) % _MODULUS


def _pairs(of: Callable[..., Any]) -> Any:
    return beam.MapTuple(of).with_output_types(_PAIR)


def _numbers(of: Callable[[Any], int]) -> Any:
    return beam.Map(of).with_output_types(int)


class Made(beam.PTransform):  # type: ignore[misc]
    """Numbers, each at its own time."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self._numbers = numbers

    def expand(self, start: Any) -> Any:
        timed = beam.Map(lambda n: TimestampedValue(n, n)).with_output_types(int)
        return start | beam.Create(self._numbers) | "time" >> timed


class _Odd(beam.PTransform):  # type: ignore[misc]
    def expand(self, numbers: Any) -> Any:
        return (numbers | beam.ParDo(SortOut()).with_outputs("odd", "even")).odd


class SortOut(beam.DoFn):  # type: ignore[misc]
    def process(self, number: int) -> Iterator[Any]:
        yield beam.pvalue.TaggedOutput("odd" if number % 2 else "even", number)


class Fold(beam.CombineFn):  # type: ignore[misc]
    """A sum whose accumulator is no number, and whose order of merging does not matter."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add_input(self, accumulator: list[int], value: int) -> list[int]:
        return [accumulator[0] + value, accumulator[1] + 1]

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        # Of a pane without elements, there are none.
        return [sum(part) for part in zip([0, 0], *accumulators, strict=True)]

    def extract_output(self, accumulator: list[int]) -> int:
        return accumulator[0] * 3 + accumulator[1]


def _greatest(values: Iterable[int]) -> int:
    return max(values, default=-(10**9))  # of a pane without elements


class KeptToTheEnd(beam.DoFn):  # type: ignore[misc]
    """Keeps its elements, and the iterables in them, until the bundle ends."""

    def start_bundle(self) -> None:
        self._kept: list[WindowedValue] = []

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        self._kept.append(WindowedValue(element, timestamp, (window,)))

    def finish_bundle(self) -> list[WindowedValue]:
        return self._kept


class KeptBesideToTheEnd(KeptToTheEnd):
    """The same, with a side input, so that it begins a stage: one in the task of the groups."""

    def process(  # type: ignore[override]
        self,
        element: Any,
        side: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        super().process(element, timestamp, window)


class _CombinedBeside(beam.PTransform):  # type: ignore[misc]
    """Groups whose iterables wait in a combiner, in a stage that a side input begins."""

    def __init__(self, aside: Any) -> None:
        super().__init__()
        self._aside = aside

    def expand(self, groups: Any) -> Any:
        passed = beam.Map(lambda group, side: (len(list(side)) % 2, group[1]), AsList(self._aside))
        return (
            groups
            | passed.with_output_types(_GROUP)
            | beam.CombinePerKey(beam.combiners.ToListCombineFn())
            | _pairs(lambda k, lists: (k, digest(n for values in lists for n in values)))
        )


class _Restrictions(RestrictionProvider):  # type: ignore[misc]
    def initial_restriction(self, number: int) -> OffsetRange:
        return OffsetRange(0, number % 4)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, number: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


_RESTRICTION = beam.DoFn.RestrictionParam(_Restrictions())


class CountsUp(beam.DoFn):  # type: ignore[misc]
    """A splittable DoFn that leaves residuals."""

    def process(self, number: int, tracker: Any = _RESTRICTION) -> Iterator[int]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield number + position
            position += 1
            if position == 2:
                tracker.defer_remainder()
                return


def _cogrouped() -> Chain:
    return Chain(beam.CoGroupByKey(), _pairs(lambda k, two: (k, sum(two[0]) * 3 - sum(two[1]))))


def _with_singleton(_: int, aside: Any) -> Any:
    return _WithSingleton(aside)


class _WithSingleton(beam.PTransform):  # type: ignore[misc]
    def __init__(self, aside: Any) -> None:
        super().__init__()
        self._aside = aside

    def expand(self, numbers: Any) -> Any:
        summed = self._aside | "sum" >> beam.CombineGlobally(sum).without_defaults()
        aside = AsSingleton(summed, default_value=-1)
        return numbers | beam.Map(lambda n, side: n + side, aside).with_output_types(int)


def _beside(of: Callable[[Any, Any], Any], view: Any, output: Any) -> Callable[[int, Any], Any]:
    return lambda _, aside: beam.Map(of, view(aside)).with_output_types(output)


def _aside_of_group(group: tuple[int, Iterable[int]], side: Any) -> tuple[int, Iterable[int]]:
    key, values = group
    return key + len(list(side)) % 2, values


_JOINED: dict[str, Kind] = {
    "flatten": Kind("", "", lambda _: beam.Flatten(), joins=True),
    "cogroup": Kind("pairs", "pairs", lambda _: _cogrouped(), joins=True),
}
_WITH_SIDE_INPUTS: dict[str, Kind] = {
    "with list": Kind(
        "numbers",
        "numbers",
        _beside(lambda n, side: (n + sum(side) * 7) % _MODULUS, AsList, int),
        beside="numbers",
    ),
    "with iterable": Kind(
        "numbers",
        "numbers",
        _beside(lambda n, side: n * len(list(side)) % _MODULUS, AsIter, int),
        beside="numbers",
    ),
    "with singleton": Kind("numbers", "numbers", _with_singleton, beside="numbers"),
    "with multimap": Kind(
        "numbers",
        "numbers",
        _beside(lambda n, side: (n + sum(side[n % 3])) % _MODULUS, AsMultiMap, int),
        beside="pairs",
    ),
    "groups with list": Kind(
        "groups", "groups", _beside(_aside_of_group, AsList, _GROUP), beside="numbers"
    ),
}
_WITH_SIDE_INPUTS |= {
    "keep groups with list": Kind(
        "groups",
        "groups",
        lambda _, aside: beam.ParDo(KeptBesideToTheEnd(), AsList(aside)).with_output_types(_GROUP),
        beside="numbers",
    ),
    "combine groups with list": Kind(
        "groups", "pairs", lambda _, aside: _CombinedBeside(aside), beside="numbers"
    ),
}
_OF_NUMBERS: dict[str, Kind] = {
    "map": Kind("numbers", "numbers", lambda number: _numbers(lambda n: (n * number + 1) % 50)),
    "repeat": Kind(
        "numbers",
        "numbers",
        lambda number: beam.FlatMap(lambda n: [n] * (n % number)).with_output_types(int),
        grows=4,
    ),
    "filter": Kind(
        "numbers", "numbers", lambda number: beam.Filter(lambda n: n % (number + 1) != 0)
    ),
    "odd": Kind("numbers", "numbers", lambda _: _Odd()),
    "distinct": Kind("numbers", "numbers", lambda _: beam.Distinct()),
    "sum all": Kind("numbers", "numbers", lambda _: beam.CombineGlobally(sum).without_defaults()),
    "sum all, fanned out": Kind(
        "numbers",
        "numbers",
        lambda number: beam.CombineGlobally(Fold()).without_defaults().with_fanout(number),
    ),
    "pair": Kind(
        "numbers",
        "pairs",
        lambda number: beam.Map(lambda n: (n % number, n)).with_output_types(_PAIR),
    ),
    "count each": Kind("numbers", "pairs", lambda _: beam.combiners.Count.PerElement()),
    "keep": Kind("numbers", "numbers", lambda _: beam.ParDo(KeptToTheEnd()).with_output_types(int)),
    "restrict": Kind(
        "numbers", "numbers", lambda _: beam.ParDo(CountsUp()).with_output_types(int), grows=3
    ),
}
_OF_PAIRS: dict[str, Kind] = {
    "unpair": Kind(
        "pairs",
        "numbers",
        lambda _: beam.MapTuple(lambda k, v: (k * 7 + v) % _MODULUS).with_output_types(int),
    ),
    "group": Kind(
        "pairs",
        "pairs",
        lambda _: Chain(beam.GroupByKey(), _pairs(lambda k, values: (k, digest(values)))),
    ),
    "sum": Kind("pairs", "pairs", lambda _: beam.CombinePerKey(sum)),
    "greatest": Kind("pairs", "pairs", lambda _: beam.CombinePerKey(_greatest)),
    "fold": Kind("pairs", "pairs", lambda _: beam.CombinePerKey(Fold())),
    "sum, fanned out": Kind(
        "pairs", "pairs", lambda number: beam.CombinePerKey(sum).with_hot_key_fanout(number)
    ),
    "list": Kind(
        "pairs",
        "pairs",
        lambda _: Chain(
            beam.CombinePerKey(beam.combiners.ToListCombineFn()),
            _pairs(lambda k, values: (k, digest(values))),
        ),
    ),
    "collect": Kind("pairs", "groups", lambda _: beam.GroupByKey()),
}
_OF_GROUPS: dict[str, Kind] = {
    "pass on": Kind(
        "groups", "groups", lambda _: beam.Map(lambda group: group).with_output_types(_GROUP)
    ),
    "sum up": Kind("groups", "pairs", lambda _: _pairs(lambda k, values: (k, digest(values)))),
    "list of group": Kind(
        "groups",
        "pairs",
        lambda _: Chain(
            beam.CombineValues(beam.combiners.ToListCombineFn()),
            _pairs(lambda k, values: (k, digest(values))),
        ),
    ),
    "keep groups": Kind(
        "groups", "groups", lambda _: beam.ParDo(KeptToTheEnd()).with_output_types(_GROUP)
    ),
}

OF_COLLECTIONS: dict[str, Kind] = {
    "create": Kind("", "numbers", Made),
    "window": Kind("", "", lambda windowing: WINDOWINGS[windowing](), grows=2),
    "reshuffle": Kind("", "", lambda _: beam.Reshuffle()),
    **_JOINED,
    **_WITH_SIDE_INPUTS,
    **_OF_NUMBERS,
    **_OF_PAIRS,
    **_OF_GROUPS,
}
