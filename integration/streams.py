"""A streaming pipeline for every kind of Spark; a module of its own, which executors import."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.testing.test_stream import TestStream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_spark_runner.transforms import DeclarativeKeyedProcess
from integration.declared_numbers import IN_WINDOW, KnowsNumbers
from integration.pipelines import Counted
from integration.strikes import Strikes
from tests.spark.restrictions import RESTRICTION

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


_ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


HELD = "HELD_SOURCES"
"""The variable with the path of a file; until there is one, ``Counts`` come to ``HELD_AT`` only."""
HELD_AT = 24


class Counts(beam.DoFn):  # type: ignore[misc]
    """Counts up to the number of each element, some at a time; a number is its own second."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: tuple[str, int],
        tracker: Any = RESTRICTION,
        estimator: Any = _ESTIMATOR,
    ) -> Iterator[Any]:
        position = tracker.current_restriction().start
        if position >= HELD_AT and HELD in os.environ and not Path(os.environ[HELD]).exists():
            tracker.defer_remainder(Duration(0.2))
            return
        while tracker.try_claim(position):
            yield TimestampedValue((element[0], position), position)
            position += 1
            estimator.set_watermark(Timestamp(position))
            if position % 3 == 0:
                tracker.defer_remainder(Duration(0.2))
                return


SINK = "Sink"
"""The step of ``sources_to_files`` that asks for stable input."""
GATHERS, RENAMED = "ParDo(Gathers)", "Collect"
"""The one with state, and its name in a later version."""


class Appends(beam.DoFn):  # type: ignore[misc]
    """Adds a line to the file of a group and window.

    It happens at least once for each group. Since its input is stable, each line is the same.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(
        self, group: tuple[str, Iterable[list[int]]], window: Any = beam.DoFn.WindowParam
    ) -> None:
        sums = "-".join(map(str, sorted(sum(values) for values in group[1])))
        with Path(self._folder, f"{group[0]}-{int(window.start)}").open("a") as file:
            file.write(f"{sums}\n")


class _CountsSome(beam.DoFn):  # type: ignore[misc]
    """Knows of each key what it has seen; what there was before it was added, it cannot know."""

    SEEN = BagStateSpec("seen", VarIntCoder())

    def process(self, pair: tuple[str, int], seen: Any = beam.DoFn.StateParam(SEEN)) -> None:
        assert pair[1] not in list(seen.read()), pair
        seen.add(pair[1])


def _plus(pair: tuple[str, int], rates: list[int]) -> tuple[str, int]:
    return pair[0], pair[1] + sum(rates)


def sources_to_files(
    pipeline: beam.Pipeline,
    count: int,
    folder: str,
    strikes: Sequence[beam.DoFn],
    *,
    pairs: Callable[[beam.Pipeline], Any] | None = None,
    is_changed: bool = False,
    is_declared: bool = False,
    left: str = "",
    in_flight: Sequence[Strikes] = (),
) -> None:
    """Sources, a windowed side input, state with timers, a grouping, and a sink.

    Args:
        pipeline: to build; its runner has ``SINK`` get stable input.
        count: of each source's numbers, a multiple of eight.
        folder: for the sink.
        strikes: steps that pass elements on: after the sources, after the state, in the sink.
        pairs: a source that stands in for one of ``Counts``, and gives the same; the side input
            has another one.
        is_changed: a later version of the pipeline: other steps come first, the one with state
            has the name ``RENAMED``, and there is one more.
        is_declared: whether there is a declarative step, too.
        left: see ``KnowsNumbers``.
        in_flight: likewise.
    """
    after_sources, after_state, in_sink = strikes
    counts = beam.ParDo(Counts()).with_output_types(tuple[str, int])
    window = FixedWindows(IN_WINDOW)

    def make_rates() -> Any:
        rates = pipeline | "Rate" >> beam.Create([("rate", count)]) | "Rates" >> counts
        return rates | beam.Values() | "Rate windows" >> beam.WindowInto(window)

    def make_pairs() -> Any:
        if pairs is not None:
            read = pairs(pipeline)
        else:
            keys = pipeline | beam.Create([(f"key {n}", count) for n in range(KEYS)])
            read = keys | "Pairs" >> counts
        read = read | beam.WindowInto(window)
        return read | "After sources" >> beam.ParDo(after_sources).with_output_types(
            tuple[str, int]
        )

    if is_changed:
        read = make_pairs()
        _ = read | "New" >> beam.ParDo(_CountsSome())
        rates = make_rates()
    else:
        rates, read = make_rates(), make_pairs()
    rated = read | beam.Map(_plus, beam.pvalue.AsList(rates)).with_output_types(tuple[str, int])
    gathered = rated | beam.ParDo(Counted("elements")).with_output_types(tuple[str, int])
    if is_declared:
        known = DeclarativeKeyedProcess(KnowsNumbers(left, in_flight)).with_output_types(
            tuple[str, int]
        )
        counted = beam.ParDo(Counted("known")).with_output_types(tuple[str, int])
        gathered = gathered | "Known" >> known | "Count known" >> counted
    gathers = beam.ParDo(Gathers()).with_output_types(tuple[str, list[int]])
    gathered = gathered | (RENAMED if is_changed else GATHERS) >> gathers
    gathered = gathered | "After state" >> beam.ParDo(after_state).with_output_types(
        tuple[str, list[int]]
    )
    groups = gathered | "Wider" >> beam.WindowInto(FixedWindows(8)) | beam.GroupByKey()
    groups | "In sink" >> beam.ParDo(in_sink) | SINK >> beam.ParDo(Appends(folder))


class _Ticks(beam.DoFn):  # type: ignore[misc]
    """Gives something in each epoch until a file is there.

    It takes a second for that if the file has the ending ``busy``, and pauses for some if it has
    the ending ``idle``.
    """

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self, element: tuple[str, int], end: str, tracker: Any = RESTRICTION
    ) -> Iterator[tuple[str, int]]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield element[0], position
            position += 1
            if Path(f"{end}.busy").exists():
                time.sleep(1)
            if Path(end).exists():
                tracker.try_claim(element[1])  # what is left is nothing
            else:
                tracker.defer_remainder(Duration(6 if Path(f"{end}.idle").exists() else 0.1))
            return


class _CountsUp(beam.DoFn):  # type: ignore[misc]
    """Gives each element of a key out; its number must be the next one."""

    SEEN = BagStateSpec("seen", VarIntCoder())

    def process(
        self, pair: tuple[str, int], seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[str, int]]:
        assert pair[1] == len(list(seen.read())), pair
        seen.add(pair[1])
        yield pair


def ticks_until(pipeline: beam.Pipeline, end: str) -> None:
    """Sources that tick until the file ``end`` is there, and state of their keys."""
    keys = pipeline | beam.Create([(f"key {n}", 1 << 30) for n in range(KEYS)])
    ticks = keys | beam.ParDo(_Ticks(), end).with_output_types(tuple[str, int])
    ticks = ticks | "Ticks" >> beam.ParDo(Counted("ticks")).with_output_types(tuple[str, int])
    ticks | beam.ParDo(_CountsUp()) | "Counted" >> beam.ParDo(Counted("counted"))


def played(count: int) -> Callable[[beam.Pipeline], Any]:
    """Return a step that plays what ``Counts`` gives, as events of a TestStream."""
    events = TestStream().with_output_types(tuple[str, int])
    for second in range(count):
        pairs = [TimestampedValue((f"key {n}", second), second) for n in range(KEYS)]
        events.add_elements(pairs)
        if second % 3 == 2:
            events.advance_watermark_to(second + 1).advance_processing_time(0.2)
    events.advance_watermark_to_infinity()
    return lambda p: p | events


def expected_counters(count: int, *, is_declared: bool = False) -> dict[str, int]:
    """Return the counters of ``sources_to_files``."""
    counters = {"elements": KEYS * count}
    if is_declared:  # each number, and one for each key and window
        counters["known"] = KEYS * (count + count // IN_WINDOW)
    return counters


def check_files(folder: Path, count: int) -> None:
    """Assert that a folder has what ``sources_to_files`` writes, each line at least once."""
    by_window: dict[int, list[int]] = {}
    for start in range(0, count, 4):
        end = start + 4  # at which the timer fires
        # Four elements, to each of which the side input's four numbers are added.
        by_window.setdefault(end // 8 * 8, []).append(5 * sum(range(start, end)))
    expected = {
        f"key {n}-{start}": {"-".join(map(str, sorted(sums)))}
        for n in range(KEYS)
        for start, sums in by_window.items()
    }
    found = {path.name: set(path.read_text().splitlines()) for path in folder.iterdir()}
    assert found == expected
