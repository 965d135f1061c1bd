"""Pipelines whose steps run by Beam's own operations, by ``--step_chunks=off``."""

import itertools
from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsSingleton, TaggedOutput
from apache_beam.transforms.trigger import AccumulationMode, AfterProcessingTime, AfterWatermark
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

from tests.harvest import RARE_HARNESSES, REUSED_PROCESS, Kept, harvest

COUNT = 500
_TICKS = itertools.count()


def _stamp(number: int) -> tuple[int, int]:
    return number, next(_TICKS)


def _since(pair: tuple[int, int]) -> int:
    """How many calls there were since the first step had this element, and with this one."""
    return next(_TICKS) - pair[1]


@pytest.mark.parametrize("flags", [(), REUSED_PROCESS], ids=["embedded", "process"])
def test_an_element_passes_all_steps_before_the_next_one(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Impulse() | beam.FlatMap(lambda _: iter(range(COUNT)))
        return {"since": numbers | "stamp" >> beam.Map(_stamp) | "since" >> beam.Map(_since)}

    assert harvest(spark_session, build, *flags, "--step_chunks=off")["since"] == [1] * COUNT
    chunked = harvest(spark_session, build, *flags)["since"]
    assert len(chunked) == COUNT
    assert max(chunked) > 1


def _sort(number: int) -> Iterable[Any]:
    yield number
    if number % 2:
        yield TaggedOutput("odd", [number])


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_results_are_the_same(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(COUNT)) | beam.Map(lambda n: TimestampedValue(n, n))
        more = numbers | beam.CombineGlobally(max).without_defaults() | beam.Map(lambda n: n - 9)
        sorted_ = numbers | beam.FlatMap(_sort).with_outputs("odd", main="all")
        keyed = sorted_.odd | "key" >> beam.Map(lambda odd: (odd[0] % 3, odd[0]))
        return {
            "large": sorted_.all | beam.Filter(lambda n, least: n > least, AsSingleton(more)),
            "sums": keyed | "slide" >> beam.WindowInto(SlidingWindows(20, 10)) | "sum" >> _SUM,
            "fixed": keyed | "fix" >> beam.WindowInto(FixedWindows(20)) | "sums" >> _SUM,
            "groups": keyed | beam.GroupByKey() | beam.MapTuple(lambda key, _: key),
        }

    off = harvest(spark_session, build, *flags, "--step_chunks=off")
    auto = harvest(spark_session, build, *flags)
    assert set(off.kept) == {"large", "sums", "fixed", "groups"}
    for label in off.kept:
        assert off.kept[label]
        assert _elements(off.kept[label]) == _elements(auto.kept[label])


def _elements(kept: Iterable[Kept]) -> list[str]:
    """Return elements without their partitions: how far the first task comes depends on time."""
    return sorted(repr(each._replace(partition=0)) for each in kept)


_SUM = beam.CombinePerKey(sum)


class _Greatest(beam.CombineFn):  # type: ignore[misc]
    """Merges at least one accumulator, as it may expect."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, number: int) -> int:
        return max(accumulator, number)

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return max(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def test_an_empty_pane_has_no_accumulators_to_merge(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        keyed = p | beam.Create([("a", n) for n in range(5)])
        windowed = keyed | beam.WindowInto(
            FixedWindows(10),
            trigger=AfterWatermark(early=AfterProcessingTime(0)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        return {"greatest": windowed | beam.CombinePerKey(_Greatest())}

    for setting in ("auto", "off"):
        found = harvest(spark_session, build, "--streaming", f"--step_chunks={setting}")
        assert found["greatest"] == [("a", 0), ("a", 4)]
