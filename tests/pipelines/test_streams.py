"""Pipelines that run in epochs, driven by a TestStream."""

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.combiners import CountCombineFn
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.transforms.userstate import (
    BagStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    TimestampedValue,
)
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfoTiming

from tests.harvest import HARNESSES, RARE_HARNESSES, Harvest, harvest, run
from tests.stateful import Number


def pairs(*times: int, key: str = "a") -> list[TimestampedValue]:
    """Return pairs of a key and a number, which is also the second of its timestamp."""
    return [TimestampedValue((key, time), time) for time in times]


def stream() -> Stream:
    return Stream().with_output_types(tuple[str, int])


def panes(found: Harvest, label: str) -> list[tuple[Any, str]]:
    """Return groups in the order in which they fired, with the timing of their panes."""
    ordered = sorted(found.kept[label], key=lambda kept: (kept.value[0], kept.pane.index))
    return [
        ((kept.value[0], sorted(kept.value[1])), PaneInfoTiming.to_string(kept.pane.timing))
        for kept in ordered
    ]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_state_lasts_from_epoch_to_epoch(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1, 2)).add_elements(pairs(3, key="b"))
        events.add_elements(pairs(4, 5)).advance_watermark_to_infinity()
        return {"numbers": p | events | beam.ParDo(Number())}

    found = harvest(spark_session, build, *flags)
    assert found["numbers"] == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0)]


def test_windows_fire_when_the_watermark_passes_them(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1, 2)).add_elements(pairs(3, 12))
        events.advance_watermark_to(10).add_elements(pairs(4, 13)).advance_watermark_to_infinity()
        groups = p | events | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()
        return {"groups": groups | beam.MapTuple(lambda key, values: (key, sorted(values)))}

    found = harvest(spark_session, build)
    assert found.timed("groups") == [(("a", [1, 2, 3]), 9.999), (("a", [12, 13]), 19.999)]


def test_sessions_merge_across_epochs(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1, 9)).add_elements(pairs(5, 30))
        events.advance_watermark_to_infinity()
        groups = p | events | beam.WindowInto(Sessions(5)) | beam.GroupByKey()
        return {"groups": groups | beam.MapTuple(lambda key, values: (key, sorted(values)))}

    found = harvest(spark_session, build)
    assert sorted((kept.value, kept.window) for kept in found.kept["groups"]) == [
        (("a", [1, 5, 9]), IntervalWindow(1, 14)),
        (("a", [30]), IntervalWindow(30, 35)),
    ]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_early_on_time_and_late_panes(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1, 2)).add_elements(pairs(3)).advance_watermark_to(10)
        events.add_elements(pairs(4)).advance_watermark_to(40).add_elements(pairs(5))
        windowed = beam.WindowInto(
            FixedWindows(10),
            trigger=AfterWatermark(early=AfterCount(2), late=AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
            allowed_lateness=20,
        )
        return {"groups": p | events | windowed | beam.GroupByKey()}

    assert panes(harvest(spark_session, build, *flags), "groups") == [
        (("a", [1, 2]), "EARLY"),
        (("a", [3]), "ON_TIME"),
        (("a", [4]), "LATE"),
    ]


def test_processing_time_is_what_the_stream_says(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1)).advance_processing_time(1000)
        events.add_elements(pairs(2, 3)).add_elements(pairs(4)).advance_processing_time(1000)
        windowed = beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterProcessingTime(500)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        return {"groups": p | events | windowed | beam.GroupByKey()}

    assert panes(harvest(spark_session, build), "groups") == [
        (("a", [1]), "EARLY"),
        (("a", [2, 3, 4]), "EARLY"),
    ]


def test_lifted_and_unlifted_combiners(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1, 2)).add_elements(pairs(3)).advance_watermark_to(9)
        events.add_elements(pairs(11, 12)).advance_watermark_to_infinity()
        values = p | events
        counting, early = (
            beam.WindowInto(
                FixedWindows(10),
                trigger=Repeatedly(AfterCount(count)),
                accumulation_mode=AccumulationMode.ACCUMULATING,
            )
            for count in (2, 1)
        )
        return {
            "sums": values | "F" >> beam.WindowInto(FixedWindows(10)) | beam.CombinePerKey(sum),
            "counts": values | "T" >> counting | "Count" >> beam.CombinePerKey(CountCombineFn()),
            "early": values | "E" >> early | "Early" >> beam.CombinePerKey(sum),
        }

    found = harvest(spark_session, build)
    assert found["sums"] == [("a", 6), ("a", 23)]
    assert found["counts"] == [("a", 2), ("a", 2), ("a", 3)]
    assert found["early"] == [("a", 3), ("a", 6), ("a", 23)]


class Wakes(beam.DoFn):  # type: ignore[misc]
    """Says what it has seen when its timers fire."""

    SEEN = BagStateSpec("seen", VarIntCoder())
    DUE = TimerSpec("due", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        seen: Any = beam.DoFn.StateParam(SEEN),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        seen.add(pair[1])
        due.set(Timestamp(pair[1] + 3))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def wake(
        self,
        key: Any = beam.DoFn.KeyParam,
        time: Any = beam.DoFn.TimestampParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
    ) -> Iterator[tuple[str, int, list[int]]]:
        yield key, int(time), sorted(seen.read())
        seen.clear()


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_timers_and_the_end_of_a_window(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1, 2)).advance_watermark_to(4)
        events.add_elements(pairs(3)).add_elements(pairs(4, key="b")).advance_watermark_to(6)
        events.add_elements(pairs(9)).advance_watermark_to(11)
        # Its window is over.
        events.add_elements(pairs(5)).add_elements(pairs(12)).advance_watermark_to_infinity()
        return {"woken": p | events | beam.WindowInto(FixedWindows(10)) | beam.ParDo(Wakes())}

    assert harvest(spark_session, build, *flags)["woken"] == [
        ("a", 6, [1, 2, 3]),
        ("a", 10, [9]),  # the timer was set for 12, and fires at the window's end
        ("a", 15, [12]),
        ("b", 7, [4]),
    ]


@pytest.mark.parametrize("flags", HARNESSES)
def test_several_levels_in_one_epoch(spark_session: Any, flags: tuple[str, ...]) -> None:
    """A watermark goes through all levels at once: the last one sees sums of whole windows."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1, 2)).add_elements(pairs(3, key="b"))
        events.advance_watermark_to(10).add_elements(pairs(11)).advance_watermark_to_infinity()
        sums = p | events | beam.WindowInto(FixedWindows(10)) | beam.CombinePerKey(sum)
        all_keys = sums | beam.MapTuple(lambda key, total: ("all", total))
        return {"totals": all_keys | "All" >> beam.CombinePerKey(sum)}

    assert harvest(spark_session, build, *flags)["totals"] == [("all", 6), ("all", 11)]


def test_two_outputs_have_watermarks_of_their_own(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["left", "right"])
        events.add_elements(pairs(1), tag="left").add_elements(pairs(2), tag="right")
        events.advance_watermark_to(10, tag="left").add_elements(pairs(3), tag="right")
        events.advance_watermark_to_infinity("left").advance_watermark_to_infinity("right")
        found = p | events
        both = [found["left"], found["right"]] | beam.Flatten()
        window = beam.WindowInto(FixedWindows(10))
        return {
            "both": both
            | "B" >> window
            | "Both" >> beam.GroupByKey()
            | "Sort" >> beam.MapTuple(by),
        }

    def by(key: str, values: Iterable[int]) -> tuple[str, list[int]]:
        return key, sorted(values)

    assert harvest(spark_session, build)["both"] == [("a", [1, 2, 3])]


def test_impulses_next_to_a_stream(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1)).advance_watermark_to_infinity()
        created = p | beam.Create([("a", 7)]) | beam.Map(lambda pair: TimestampedValue(pair, 7))
        both = (p | events, created) | beam.Flatten()
        groups = both | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()
        return {"groups": groups | beam.MapTuple(lambda key, values: (key, sorted(values)))}

    assert harvest(spark_session, build)["groups"] == [("a", [1, 7])]


def test_committed_metrics_count_each_element_once(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1, 2)).add_elements(pairs(3))
        events.advance_watermark_to_infinity()

        def count(pair: tuple[str, int]) -> tuple[str, int]:
            beam.metrics.Metrics.counter("streams", "seen").inc()
            return pair

        return {"all": p | events | beam.Map(count)}

    found = harvest(spark_session, build)
    assert found.counter("seen") == 3


def test_a_stream_that_nobody_reads(spark_session: Any) -> None:
    result = run(spark_session, lambda p: p | stream().add_elements(pairs(1)))
    assert result.state == "DONE"


def test_strings_of_any_length_are_keys(spark_session: Any) -> None:
    long = "k" * 1_000

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(coder=beam.coders.TupleCoder([StrUtf8Coder(), VarIntCoder()]))
        events = events.with_output_types(tuple[str, int])
        events.add_elements([(long, 1)]).add_elements([(long, 2)]).advance_watermark_to_infinity()
        return {"numbers": p | events | beam.ParDo(Number())}

    assert harvest(spark_session, build)["numbers"] == [(long, 0), (long, 1)]
