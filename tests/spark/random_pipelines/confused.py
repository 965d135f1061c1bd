"""Keys that are equal in Python, and not in Beam: in groups, combiners, state and side inputs.

Beam's own runner confuses them, too, in combiners before the shuffle: there, numbers stand for
them.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.pvalue import AsMultiMap
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import GlobalWindows

from tests.spark.random_pipelines.chain import Chain, without_pane

KEYS: tuple[Any, ...] = (
    True,
    1,
    1.0,
    False,
    0,
    0.0,
    -0.0,
    math.nan,
    (1, "x"),
    (True, "x"),
    (1.0, "x"),
    ((0.0,),),
)
KEYS += (((-0.0,),), ((False,),), "1", b"1", None)
_PLACES = {repr(key): place for place, key in enumerate(KEYS)}
assert len(_PLACES) == len(KEYS)

_KEYED = tuple[Any, int]
_PAIR = tuple[int, int]


def _key(number: int) -> Any:
    return KEYS[number % len(KEYS)]


def _stands_for(number: int) -> int:
    return number % len(KEYS)


def _place(key: Any) -> int:
    return _PLACES[repr(key)]


def _itself(place: int) -> int:
    return place


Grouping = Callable[[], Any]
"""Makes a transform that takes pairs of any key and a number, and gives pairs of these."""


class _PerKey(beam.PTransform):  # type: ignore[misc]
    """A grouping of numbers by keys; it gives numbers.

    Args:
        grouping: takes and gives pairs of a key and a number.
        is_confusing: False: numbers stand for the keys.
    """

    def __init__(self, grouping: Any, *, is_confusing: bool) -> None:
        super().__init__()
        self._grouping = grouping
        self._key = _key if is_confusing else _stands_for
        self._place = _place if is_confusing else _itself

    def expand(self, numbers: Any) -> Any:
        key, place = self._key, self._place
        keyed = beam.Map(lambda n: (key(n), n)).with_output_types(_KEYED)
        known = beam.MapTuple(lambda key, n: place(key) + 100 * n).with_output_types(int)
        return numbers | keyed | self._grouping | "known" >> known


class _CountEach(beam.PTransform):  # type: ignore[misc]
    def expand(self, pairs: Any) -> Any:
        return pairs | beam.Keys() | beam.combiners.Count.PerElement()


class _Distinct(beam.PTransform):  # type: ignore[misc]
    def expand(self, pairs: Any) -> Any:
        return pairs | beam.Keys() | beam.Distinct() | beam.Map(lambda key: (key, 1))


class _CoGroup(beam.PTransform):  # type: ignore[misc]
    def expand(self, pairs: Any) -> Any:
        other = pairs | "other" >> beam.MapTuple(lambda key, n: (key, n % 5))
        both = (pairs, other) | beam.CoGroupByKey()
        return both | "both" >> beam.MapTuple(lambda key, two: (key, sum(two[0]) - sum(two[1])))


def _group() -> Chain:
    return Chain(beam.GroupByKey(), beam.MapTuple(_summed).with_output_types(_KEYED))


def _summed(key: Any, numbers: Iterable[int]) -> tuple[Any, int]:
    return key, sum(numbers)


class _Held(beam.DoFn):  # type: ignore[misc]
    """Sums the numbers of a key, in its state."""

    KEPT = BagStateSpec("kept", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[Any, int],
        window: Any = beam.DoFn.WindowParam,
        kept: Any = beam.DoFn.StateParam(KEPT),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        kept.add(pair[1])
        end.set(window.max_timestamp())

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, kept: Any = beam.DoFn.StateParam(KEPT)
    ) -> Iterator[tuple[Any, int]]:
        yield key, sum(kept.read())


def _hold(held: Any) -> Chain:
    """State has no windows that merge, and no panes."""
    return Chain(beam.WindowInto(GlobalWindows()), held, without_pane().with_output_types(_KEYED))


GROUPINGS: dict[str, Callable[[int], Any]] = {
    "count": lambda _: _CountEach(),
    "sum": lambda _: beam.CombinePerKey(sum),
    "sum, fanned out": lambda number: beam.CombinePerKey(sum).with_hot_key_fanout(number),
    "distinct": lambda _: _Distinct(),
    "group": lambda _: _group(),
    "cogroup": lambda _: _CoGroup(),
    "hold": lambda _: _hold(beam.ParDo(_Held()).with_output_types(_KEYED)),
}
_ON_BEAMS = dict(GROUPINGS)
_ON_BEAMS["hold"] = lambda _: _hold(_group())  # its timers have keys of one type


def grouped(name: str, number: int) -> _PerKey:
    """Group numbers by keys that Python confuses, with one of ``GROUPINGS``."""
    return _PerKey(GROUPINGS[name](number), is_confusing=True)


def grouped_by_numbers(name: str, number: int) -> _PerKey:
    """The same, with numbers in place of the keys."""
    return _PerKey(_ON_BEAMS[name](number), is_confusing=False)


class _LookUp(beam.PTransform):  # type: ignore[misc]
    def __init__(self, aside: Any, *, is_confusing: bool) -> None:
        super().__init__()
        self._aside = aside
        self._key = _key if is_confusing else _stands_for

    def expand(self, numbers: Any) -> Any:
        key = self._key
        keyed = self._aside | "keyed" >> beam.Map(lambda n: (key(n), n)).with_output_types(_KEYED)

        def look_up(n: int, side: Any) -> int:
            # Twice, in an order in which each is the first of those that are alike.
            found: list[int] = [sum(side[key(n + other)]) for other in (0, 1, 2, 1, 0)]
            return sum(place * each for place, each in enumerate(found, 1)) % 1_000_003

        return numbers | beam.Map(look_up, AsMultiMap(keyed)).with_output_types(int)


def looked_up(_: int, aside: Any) -> _LookUp:
    """Look up keys that Python confuses."""
    return _LookUp(aside, is_confusing=True)


def looked_up_by_numbers(_: int, aside: Any) -> _LookUp:
    """The same, with numbers in place of the keys."""
    return _LookUp(aside, is_confusing=False)
