"""Epochs that end before everything has fired that is due."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterWatermark,
)
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, Sessions, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfoTiming

from tests.harvest import RARE_HARNESSES, Harvest, harvest

KEYS = 7
# An epoch has no time: in each stage and task one timer fires.
AT_ONCE = "--batch_interval_millis=0"


def stream() -> Stream:
    events = Stream().with_output_types(tuple[str, int])
    events.add_elements([TimestampedValue((f"key {n}", n), n % 3) for n in range(KEYS)])
    # All windows are due; the next event comes when all have fired.
    events.advance_watermark_to(10)
    events.add_elements([TimestampedValue(("key 0", 100), 5), TimestampedValue(("new", 0), 5)])
    return events.advance_watermark_to_infinity()


def test_panes_that_are_interrupted_are_on_time_and_so_is_what_is_made_of_them(
    spark_session: Any,
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        into = beam.WindowInto(
            FixedWindows(10),
            trigger=AfterWatermark(late=AfterCount(1)),
            allowed_lateness=20,
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        sums = p | stream() | into | beam.CombinePerKey(sum)
        again = sums | beam.Map(lambda pair: ("all", pair[1]))
        return {"sums": sums, "all": again | "Again" >> beam.GroupByKey()}

    found = harvest(spark_session, build, AT_ONCE)
    assert facts(found, "sums") == sorted(
        [(f"key {n}", n, "ON_TIME") for n in range(KEYS)]
        + [("key 0", 100, "LATE"), ("new", 0, "LATE")]
    )
    on_time, *late = sorted(found.kept["all"], key=lambda kept: kept.pane.index)
    assert sorted(on_time.value[1]) == list(range(KEYS))
    assert on_time.pane.timing == PaneInfoTiming.ON_TIME
    assert sorted(value for kept in late for value in kept.value[1]) == [0, 100]


WINDOWS = 7


@pytest.mark.parametrize(
    ("windows", "end"),
    [
        pytest.param(FixedWindows(10), 10 * WINDOWS, id="fixed"),
        pytest.param(Sessions(5), None, id="sessions, at the end of time"),
    ],
)
def test_very_many_windows_of_one_key(spark_session: Any, windows: Any, end: int | None) -> None:
    """A window of a key is the unit: one fires in each epoch, in the order of time."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements([TimestampedValue(("k", n), 10 * n) for n in range(WINDOWS)])
        if end is not None:
            events.advance_watermark_to(end)
        events.advance_watermark_to_infinity()
        sums = p | events | beam.WindowInto(windows) | beam.CombinePerKey(sum)
        again = sums | "Wide" >> beam.WindowInto(FixedWindows(50)) | beam.GroupByKey()
        return {"sums": sums, "again": again}

    found = harvest(spark_session, build, AT_ONCE)
    assert facts(found, "sums") == [("k", n, "ON_TIME") for n in range(WINDOWS)]
    # What comes after them is on time, too: they hold its watermark until they have fired.
    groups = [(sorted(kept.value[1]), kept.pane.timing) for kept in found.kept["again"]]
    on_time = PaneInfoTiming.ON_TIME
    assert sorted(groups) == [([0, 1, 2, 3, 4], on_time), ([5, 6], on_time)]


class Seen(beam.DoFn):  # type: ignore[misc]
    """Remembers what has come of its key and window, until that ends."""

    SEEN = BagStateSpec("seen", VarIntCoder())

    def process(
        self, pair: tuple[str, Iterable[int]], seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[str, list[int]]]:
        key, values = pair
        for value in values:
            seen.add(value)
        yield key, sorted(seen.read())


@pytest.mark.parametrize("option", [(), ("--unaligned_splittable_timers",)])
def test_windows_of_one_key_of_a_step_that_has_state(
    spark_session: Any, option: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements([TimestampedValue(("k", n), 10 * n) for n in range(WINDOWS)])
        events.advance_watermark_to(10 * WINDOWS).advance_watermark_to_infinity()
        groups = p | events | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()
        return {"seen": groups | beam.ParDo(Seen())}

    found = harvest(spark_session, build, AT_ONCE, *option)
    assert found["seen"] == [("k", [n]) for n in range(WINDOWS)]


def facts(found: Harvest, label: str) -> list[tuple[Any, ...]]:
    return sorted(
        (*kept.value, PaneInfoTiming.to_string(kept.pane.timing)) for kept in found.kept[label]
    )


class Twice(beam.DoFn):  # type: ignore[misc]
    """Sets a timer that sets another one when it fires."""

    FIRST = TimerSpec("first", TimeDomain.WATERMARK)
    SECOND = TimerSpec("second", TimeDomain.WATERMARK)

    def process(self, pair: tuple[str, int], first: Any = beam.DoFn.TimerParam(FIRST)) -> None:
        first.set(Timestamp(pair[1]))

    @on_timer(FIRST)  # type: ignore[untyped-decorator]
    def fire_first(
        self,
        key: Any = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        second: Any = beam.DoFn.TimerParam(SECOND),
    ) -> Iterator[tuple[str, str]]:
        second.set(time + 1)
        yield key, "first"

    @on_timer(SECOND)  # type: ignore[untyped-decorator]
    def fire_second(self, key: Any = beam.DoFn.KeyParam) -> Iterator[tuple[str, str]]:
        yield key, "second"


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_timers_of_user_code_fire_once_each(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements([TimestampedValue((f"key {n}", 5), 0) for n in range(KEYS)])
        events.advance_watermark_to(10).advance_watermark_to_infinity()
        fired = p | events | beam.ParDo(Twice()).with_output_types(tuple[str, str])
        windowed = fired | beam.WindowInto(FixedWindows(20)) | beam.GroupByKey()
        return {"groups": windowed | beam.MapTuple(lambda key, values: (key, sorted(values)))}

    options = ("--unaligned_splittable_timers", "--timer_fire_batch_size=2", AT_ONCE)
    found = harvest(spark_session, build, *flags, *options)
    assert found["groups"] == [(f"key {n}", ["first", "second"]) for n in range(KEYS)]
