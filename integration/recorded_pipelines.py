"""Pipelines whose messages are recorded: each kind of state, timer, metric, split and window."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import apache_beam as beam
from apache_beam.coders import StrUtf8Coder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.metrics import Metrics
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms import trigger, window
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    ReadModifyWriteStateSpec,
    SetStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.utils.histogram import LinearBucket
from apache_beam.utils.timestamp import Timestamp

from tests.spark.lanes import Lane, Lanes
from tests.stateful import Collect, Mixed, timed

PAIRS = [("a", 1), ("b", 2), ("a", 3), ("c", 40), ("a", 7), ("a", 9)]


class Measures(beam.DoFn):  # type: ignore[misc]
    """Updates a metric of each type."""

    def process(self, pair: tuple[str, int]) -> Iterator[tuple[str, int]]:
        name, number = pair
        Metrics.counter("ours", "counter").inc(number)
        Metrics.distribution("ours", "distribution").update(number)
        Metrics.gauge("ours", "gauge").set(number)
        Metrics.string_set("ours", "strings").add(name * 5)
        Metrics.bounded_trie("ours", "trie").add(("x", name, str(number)))
        histogram = Metrics.histogram("ours", "histogram", LinearBucket(0, 2, 10))
        histogram.update(number)
        logging.getLogger("ours").warning("measured %s", pair)
        yield pair


class Wakes(beam.DoFn):  # type: ignore[misc]
    """Sets, changes and clears timers of both kinds, some with tags."""

    EVENT = TimerSpec("event", TimeDomain.WATERMARK)
    CLOCK = TimerSpec("clock", TimeDomain.REAL_TIME)
    LAST = ReadModifyWriteStateSpec("last", StrUtf8Coder())
    NAMES = SetStateSpec("names", StrUtf8Coder())

    def process(
        self,
        pair: tuple[str, int],
        event: Any = beam.DoFn.TimerParam(EVENT),
        clock: Any = beam.DoFn.TimerParam(CLOCK),
        last: Any = beam.DoFn.StateParam(LAST),
        names: Any = beam.DoFn.StateParam(NAMES),
    ) -> None:
        number = pair[1]
        event.set(Timestamp(number), dynamic_timer_tag=str(number % 2))
        event.set(Timestamp(50))
        clock.set(Timestamp(time.time()))
        if number == 3:
            event.clear(dynamic_timer_tag="1")
        last.write(f"{last.read()}{number}" * 20)
        names.add(str(number))

    @on_timer(EVENT)  # type: ignore[untyped-decorator]
    def at_event(self, key: Any = beam.DoFn.KeyParam) -> Iterator[Any]:
        yield key

    @on_timer(CLOCK)  # type: ignore[untyped-decorator]
    def at_clock(self, names: Any = beam.DoFn.StateParam(NAMES)) -> Iterator[Any]:
        yield from sorted(names.read())


class Ranges(RestrictionProvider):  # type: ignore[misc]
    """Each element is the end of a range of numbers."""

    def initial_restriction(self, element: int) -> OffsetRange:
        return OffsetRange(0, element)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: int, restriction: OffsetRange) -> int:
        return int(restriction.size())


_RANGES = beam.DoFn.RestrictionParam(Ranges())


class Counts(beam.DoFn):  # type: ignore[misc]
    """Yields the numbers of a range, of which it defers every fifth and what follows it."""

    def process(self, element: int, tracker: Any = _RANGES) -> Iterator[int]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield position
            position += 1
            time.sleep(0.02)
            if position % 5 == 0:
                tracker.defer_remainder()
                return


class Joined(Lanes):
    """Both lanes of ten seconds become one."""

    def is_merging(self) -> bool:
        return True

    def merge(self, merge_context: window.WindowFn.MergeContext) -> None:
        tens: dict[int, list[Lane]] = {}
        for each in merge_context.windows:
            tens.setdefault(each.parts[0], []).append(each)
        for begin, lanes in tens.items():
            if len(lanes) > 1:
                merge_context.merge(lanes, Lane(begin, 0, " and odd"))


def _states(pipeline: beam.Pipeline) -> Any:
    pairs = pipeline | timed(PAIRS)
    fixed = pairs | beam.WindowInto(window.FixedWindows(10))
    return (
        pairs | "mixed" >> beam.ParDo(Mixed()),
        fixed | "collect" >> beam.ParDo(Collect()),
        pairs | "wakes" >> beam.ParDo(Wakes()),
        fixed | "wakes in windows" >> beam.ParDo(Wakes()),
    )


def _metrics(pipeline: beam.Pipeline) -> Any:
    return (
        pipeline
        | beam.Create(PAIRS)
        | beam.Reshuffle()
        | beam.ParDo(Measures())
        | beam.CombinePerKey(sum)
    )


def _splittable(pipeline: beam.Pipeline) -> Any:
    windowed = beam.WindowInto(window.FixedWindows(10))
    return (
        pipeline | beam.Create([7, 12, 90]) | "count" >> beam.ParDo(Counts()),
        pipeline | "t" >> timed(PAIRS) | windowed | beam.Values() | "w" >> beam.ParDo(Counts()),
    )


def _side_inputs(pipeline: beam.Pipeline) -> Any:
    pairs = pipeline | timed(PAIRS) | beam.WindowInto(window.FixedWindows(10))
    sums = pairs | beam.CombinePerKey(sum)
    lanes = pipeline | "l" >> timed(PAIRS) | "lanes" >> beam.WindowInto(Lanes())
    return tuple(
        pairs | name >> beam.Map(look, side)
        for name, side, look in (
            ("list", beam.pvalue.AsList(pairs), _count),
            ("map", beam.pvalue.AsDict(sums), _look_up),
            ("multimap", beam.pvalue.AsMultiMap(pairs), _look_up_all),
            ("list of lanes", beam.pvalue.AsList(lanes), _count),
            ("multimap of lanes", beam.pvalue.AsMultiMap(lanes), _look_up_all),
        )
    )


def _count(pair: Any, side: Any) -> int:
    return len(side)


def _look_up(pair: Any, side: Any) -> Any:
    return side.get(pair[0])


def _look_up_all(pair: Any, side: Any) -> list[Any]:
    return list(side[pair[0]])


def _windows(pipeline: beam.Pipeline) -> Any:
    pairs = pipeline | timed(PAIRS)
    early = beam.WindowInto(
        window.Sessions(5),
        trigger=trigger.Repeatedly(trigger.AfterCount(1)),
        accumulation_mode=trigger.AccumulationMode.ACCUMULATING,
    )
    sliding = beam.WindowInto(window.SlidingWindows(10, 4))
    return (
        pairs
        | "join" >> beam.WindowInto(Joined())
        | "joined" >> beam.GroupByKey()
        | "j" >> beam.Map(str),
        pairs | "early" >> early | "sessions" >> beam.GroupByKey() | beam.Map(str),
        pairs | "sliding" >> sliding | "sums" >> beam.CombinePerKey(sum) | "s" >> beam.Map(str),
    )


def _streams(pipeline: beam.Pipeline) -> Any:
    stream = TestStream().with_output_types(tuple[str, int])
    for time_s in (1, 2, 3, 11, 13, 24):
        values = [window.TimestampedValue((key, time_s), time_s) for key in "ab"]
        stream = stream.advance_watermark_to(time_s - 1).add_elements(values)
    pairs = pipeline | stream.advance_watermark_to_infinity()
    lanes = pairs | beam.WindowInto(Lanes())
    side = beam.pvalue.AsList(lanes)
    join = pairs | "join" >> beam.WindowInto(Joined())
    return (
        pairs | "fixed" >> beam.WindowInto(window.FixedWindows(10)) | beam.Map(_count, side),
        join | beam.GroupByKey() | "joined" >> beam.Map(str),
        lanes | beam.ParDo(Collect()) | "collected" >> beam.Map(str),
        lanes | "wakes" >> beam.ParDo(Wakes()) | "woken" >> beam.Map(str),
        lanes | beam.Values() | "count" >> beam.ParDo(Counts()) | "counted" >> beam.Map(str),
        pairs | "mixed" >> beam.ParDo(Mixed()) | "m" >> beam.Map(str),
    )


def _fails(pipeline: beam.Pipeline) -> Any:
    return pipeline | beam.Create([0]) | beam.Reshuffle() | "fails" >> beam.Map(lambda x: 1 // x)


PIPELINES: Mapping[str, Callable[[beam.Pipeline], Any]] = MappingProxyType(
    {
        "states": _states,
        "metrics": _metrics,
        "splittable": _splittable,
        "side inputs": _side_inputs,
        "windows": _windows,
        "streams": _streams,
        "fails": _fails,
    }
)
