"""The steps of random pipelines that stream.

Every collection holds pairs: a key, and the numbers of the elements that this one is made of,
sorted.
What a step gives does not depend on the order of the elements of a bundle.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsList
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from tests.spark.main_module import of_main
from tests.spark.random_streams.stateful import PAIR, STATEFUL, Boxes, InOrder, Numbers
from tests.spark.random_streams.windowings import Windowing

SEEN_ASIDE = 1_000_000
"""Added to numbers that come from a side input."""
CONFUSED = {"a": True, "b": 1, "c": 1.0, "all": (1,)}
"""Keys that Python takes for equal, except for the last one, and Beam does not."""


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


class _Confused(beam.PTransform):  # type: ignore[misc]
    """A grouping whose keys Python confuses."""

    def __init__(self, grouping: Any) -> None:
        super().__init__()
        self._grouping = grouping

    def expand(self, pairs: Any) -> Any:
        confused = beam.MapTuple(lambda key, numbers: (CONFUSED[key], numbers))
        pairs |= confused.with_output_types(tuple[Any, tuple[int, ...]])
        return pairs | self._grouping | "clear" >> beam.MapTuple(_clear).with_output_types(PAIR)


def _clear(confused: Any, numbers: Numbers) -> tuple[str, Numbers]:
    (key,) = (key for key, each in CONFUSED.items() if type(each) is type(confused))
    return key, numbers


class _InBoxes(beam.PTransform):  # type: ignore[misc]
    """Keeps numbers until the end of their window, in objects of the main module."""

    def expand(self, pairs: Any) -> Any:
        boxed, unboxed = of_main("boxed"), of_main("unboxed")
        return (
            pairs
            | "box" >> beam.MapTuple(lambda key, numbers: (key, boxed(numbers)))
            | beam.ParDo(Boxes())
            | beam.MapTuple(
                lambda key, boxes: (key, tuple(sorted(n for each in boxes for n in unboxed(each))))
            ).with_output_types(PAIR)
        )


def beyond(
    pair: tuple[str, Numbers],
    at: Any = beam.DoFn.TimestampParam,
    window: Any = beam.DoFn.WindowParam,
) -> Iterator[WindowedValue]:
    """Give an element a time at the end of its window, or after it, and leave it there."""
    yield WindowedValue(pair, time_beyond(pair[1], at, window), (window,))


def time_beyond(numbers: Numbers, at: Timestamp, window: Any) -> Timestamp:
    """Return the time that ``beyond`` gives an element."""
    last = window.max_timestamp()
    after = last if isinstance(window, GlobalWindow) else window.end
    choices = at, last, after, after + 3, MAX_TIMESTAMP
    return choices[zlib.crc32(repr(numbers).encode()) % len(choices)]


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


GROUPINGS = ("group", "concat", "concat all", "group confused", "concat confused")
HELD = ("look up", "in order", "stable")
"""What keeps elements for later."""


def transform(kind: str, args: tuple[Any, ...], side: Any) -> Any:
    """Return the transform of a step.

    Args:
        kind: "window", "rekey", "reshuffle", "beyond", "in boxes", one of ``GROUPINGS``, of
            ``HELD``, of ``STATEFUL``. "in order" and "stable" also need ``running.asking_for``.
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
        case "group confused":
            return _Confused(_Group())
        case "concat confused":
            return _Confused(beam.CombinePerKey(Concat()))
        case "in boxes":
            return _InBoxes()
        case "beyond":
            return beam.ParDo(beyond).with_output_types(PAIR)
        case "in order":
            return beam.ParDo(InOrder()).with_output_types(PAIR)
        case "stable":
            return beam.Map(lambda pair: pair).with_output_types(PAIR)
    return beam.ParDo(STATEFUL[kind]()).with_output_types(PAIR)


def rekey(key: str, numbers: Numbers) -> tuple[str, Numbers]:
    """Bring the elements of several keys to one."""
    return ("a" if key in "ab" else key), numbers
