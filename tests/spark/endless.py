"""Streaming pipelines that have no end of their own."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration

from beam_spark_runner import SparkPortableRunner
from tests.spark.restrictions import Counting

QUICK = "--batch_interval_millis=50"
FOR_EVER = 1 << 40
HOUR_S = 3600


class Note(beam.DoFn):  # type: ignore[misc]
    """Makes an empty file for each element."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def process(self, element: Any) -> None:
        Path(self._folder, str(element).replace("/", " ")).touch()


def noted(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class EndlessTracker(OffsetRestrictionTracker):  # type: ignore[misc]
    """Ends where it is, and nowhere else: a part from its middle would have numbers of its own."""

    def is_bounded(self) -> bool:
        return False

    def try_split(self, fraction_of_remainder: float) -> Any:
        return None if fraction_of_remainder else super().try_split(0)


class Endless(Counting):
    """Nothing remains of it when it is drained."""

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return EndlessTracker(restriction)


def three_of(element: tuple[str, int], tracker: Any) -> Iterator[TimestampedValue]:
    """Count three numbers, and wait: for an hour after the first ones.

    The runner may end a bundle between two of the three.
    """
    begun = tracker.current_restriction().start
    for number in range(begun, begun - begun % 3 + 3):
        if not tracker.try_claim(number):
            return
        yield TimestampedValue((element[0], number), number)
    tracker.defer_remainder(Duration(HOUR_S if begun < 3 else 0.3))


def count(provider: Counting) -> beam.ParDo:
    class Count(beam.DoFn):  # type: ignore[misc]
        @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
        def process(
            self,
            element: tuple[str, int],
            tracker: Any = beam.DoFn.RestrictionParam(provider),  # noqa: B008
        ) -> Iterator[TimestampedValue]:
            yield from three_of(element, tracker)

    return beam.ParDo(Count())


class Looping(beam.DoFn):  # type: ignore[misc]
    """Has a timer that always sets itself again, in an hour of processing time."""

    DUE = TimerSpec("due", TimeDomain.REAL_TIME)
    SEEN = ReadModifyWriteStateSpec("seen", VarIntCoder())

    def process(
        self,
        pair: tuple[str, int],
        due: Any = beam.DoFn.TimerParam(DUE),
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> None:
        seen.write((seen.read() or 0) + 1)
        due.set(time.time() + HOUR_S)

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def wake(
        self,
        key: Any = beam.DoFn.KeyParam,
        due: Any = beam.DoFn.TimerParam(DUE),
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> Iterator[str]:
        due.set(time.time() + HOUR_S)
        yield f"{key} has seen {seen.read()}"


_STARTED: list[Any] = []


@pytest.fixture
def nothing_goes_on() -> Iterator[None]:
    """End what a test has started: a pipeline that continues would keep the process."""
    yield
    while _STARTED:
        _STARTED.pop().cancel()


def started(spark: Any, build: Callable[[beam.Pipeline], Any], *flags: str) -> Any:
    """Start a pipeline; the test uses the fixture ``nothing_goes_on``."""
    options = PipelineOptions([QUICK, *flags])
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark), options=options)
    build(pipeline)
    _STARTED.append(pipeline.run())
    return _STARTED[-1]


def windows_and_timers(seen: Path, ended: Path) -> Callable[[beam.Pipeline], Any]:
    """Build a pipeline in which all that comes after the source waits for hours."""

    def build(p: beam.Pipeline) -> None:
        counted = count(Endless()).with_output_types(tuple[str, int])
        numbers = p | beam.Create([("a", FOR_EVER), ("b", FOR_EVER)]) | counted
        _ = numbers | "see" >> beam.ParDo(Note(seen))
        groups = numbers | beam.WindowInto(FixedWindows(HOUR_S)) | beam.GroupByKey()
        texts = groups | beam.MapTuple(lambda key, values: f"{key} {sorted(values)}")
        _ = texts | "groups" >> beam.ParDo(Note(ended))
        _ = numbers | beam.ParDo(Looping()) | "timers" >> beam.ParDo(Note(ended))

    return build


WINDOWS_AND_TIMERS = ["a [0, 1, 2]", "a has seen 3", "b [0, 1, 2]", "b has seen 3"]
