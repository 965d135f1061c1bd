"""A streaming pipeline for every kind of Spark; a module of its own, which executors import."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from integration.pipelines import Counted

KEYS = 5


class Gathers(beam.DoFn):  # type: ignore[misc]
    """Gives out what it has seen of a key and window when the window ends."""

    SEEN = BagStateSpec("seen", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        seen.add(pair[1])
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, sorted(seen.read())


def _times(pair: tuple[str, int], factor: int) -> tuple[str, int]:
    return pair[0], pair[1] * factor


def windows_of_state(pipeline: beam.Pipeline) -> None:
    """Three epochs with elements, two windows, state, timers, a side input and a sum; checked."""
    events = TestStream().with_output_types(tuple[str, int])
    for second in (1, 2, 11):
        events.add_elements([TimestampedValue((f"key {n}", second), second) for n in range(KEYS)])
    events.advance_watermark_to_infinity()
    factor = pipeline | beam.Create([10])
    pairs = (
        pipeline
        | events
        | beam.ParDo(Counted("elements"))
        | beam.Map(_times, beam.pvalue.AsSingleton(factor))
        | beam.WindowInto(FixedWindows(10))
    )
    gathered = pairs | beam.ParDo(Gathers())
    sums = pairs | beam.CombinePerKey(sum)
    both = (gathered, sums) | beam.Flatten()
    expected: list[Any] = [
        each
        for n in range(KEYS)
        for each in [
            (f"key {n}", [10, 20]),
            (f"key {n}", [110]),
            (f"key {n}", 30),
            (f"key {n}", 110),
        ]
    ]
    assert_that(both, equal_to(expected))


class _Numbers(RestrictionProvider):  # type: ignore[misc]
    """Restrictions from 0 to an element's number."""

    def initial_restriction(self, element: tuple[str, int]) -> OffsetRange:
        return OffsetRange(0, element[1])

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element: tuple[str, int], restriction: OffsetRange) -> int:
        return int(restriction.size())


_RESTRICTION = beam.DoFn.RestrictionParam(_Numbers())
_ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


class Counts(beam.DoFn):  # type: ignore[misc]
    """Counts up to the number of each element, some at a time; a number is its own second."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: tuple[str, int],
        tracker: Any = _RESTRICTION,
        estimator: Any = _ESTIMATOR,
    ) -> Iterator[Any]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield TimestampedValue((element[0], position), position)
            position += 1
            estimator.set_watermark(Timestamp(position))
            if position % 3 == 0:
                tracker.defer_remainder(Duration(0.2))
                return


class Files(beam.DoFn):  # type: ignore[misc]
    """Writes a file for each group, named by its content."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, group: tuple[str, Iterable[list[int]]]) -> None:
        name = f"{group[0]}-{'-'.join(map(str, sorted(sum(values) for values in group[1])))}"
        Path(self._folder, name).touch()


def _plus(pair: tuple[str, int], rates: list[int]) -> tuple[str, int]:
    return pair[0], pair[1] + sum(rates)


def sources_to_files(
    pipeline: beam.Pipeline, count: int, folder: str, strikes: Sequence[beam.DoFn | None]
) -> None:
    """Sources, a windowed side input, state with timers, a grouping, and a sink.

    Args:
        pipeline: to build.
        count: of each source's numbers, a multiple of eight.
        folder: for the sink.
        strikes: steps that pass elements on: after the sources, after the state, in the sink.
    """
    after_sources, after_state, in_sink = strikes
    counts = beam.ParDo(Counts()).with_output_types(tuple[str, int])
    window = FixedWindows(4)
    rates = pipeline | "Rate" >> beam.Create([("rate", count)]) | "Rates" >> counts | beam.Values()
    rates = rates | "Rate windows" >> beam.WindowInto(window)
    keys = pipeline | beam.Create([(f"key {n}", count) for n in range(KEYS)])
    pairs = keys | "Pairs" >> counts | beam.WindowInto(window)
    if after_sources is not None:
        pairs = pairs | beam.ParDo(after_sources).with_output_types(tuple[str, int])
    rated = pairs | beam.Map(_plus, beam.pvalue.AsList(rates)).with_output_types(tuple[str, int])
    gathered = rated | beam.ParDo(Counted("elements")).with_output_types(tuple[str, int])
    gathered = gathered | beam.ParDo(Gathers()).with_output_types(tuple[str, list[int]])
    if after_state is not None:
        gathered = gathered | "After state" >> beam.ParDo(after_state).with_output_types(
            tuple[str, list[int]]
        )
    groups = gathered | "Wider" >> beam.WindowInto(FixedWindows(8)) | beam.GroupByKey()
    if in_sink is not None:
        groups = groups | "In sink" >> beam.ParDo(in_sink)
    groups | beam.ParDo(Files(folder))


def files_of_sources(count: int) -> set[str]:
    """Return the names of the files that ``sources_to_files`` writes."""
    by_window: dict[int, list[int]] = {}
    for start in range(0, count, 4):
        end = start + 4  # at which the timer fires
        # Four elements, to each of which the side input's four numbers are added.
        by_window.setdefault(end // 8, []).append(5 * sum(range(start, end)))
    return {
        f"key {n}-{'-'.join(map(str, sorted(sums)))}"
        for n in range(KEYS)
        for sums in by_window.values()
    }
