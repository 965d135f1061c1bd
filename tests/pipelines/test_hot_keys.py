"""Keys that most of the elements have."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import (
    FixedWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
)

from tests.harvest import REUSED_PROCESS, SPREAD, harvest

COUNT = 40_000
HOT = "hot"


def key_of(number: int) -> str:
    """Nine of ten have one key; the others' keys have two elements each."""
    return HOT if number % 10 else f"cold {number // 20}"


def pairs(pipeline: beam.Pipeline) -> beam.PCollection:
    return (
        pipeline
        | beam.Create(range(0, COUNT, 1000))
        | beam.Reshuffle()
        | beam.FlatMap(lambda start: range(start, start + 1000))
        | beam.Map(lambda number: TimestampedValue((key_of(number), number), number))
    )


def expected(of: Any) -> list[tuple[str, Any]]:
    groups: dict[str, list[int]] = {}
    for number in range(COUNT):
        groups.setdefault(key_of(number), []).append(number)
    return sorted((key, of(numbers)) for key, numbers in groups.items())


def test_groups_sums_and_joins(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        skewed = pairs(p)
        few = p | "few" >> beam.Create([(HOT, 1), (HOT, 2), ("cold 0", 3)])

        def fanout(key: str) -> int:
            return 16 if key == HOT else 1

        return {
            "groups": skewed | beam.GroupByKey() | beam.MapTuple(lambda k, v: (k, sum(v))),
            "sums": skewed | beam.CombinePerKey(sum),
            "fanned out": skewed | "fan" >> beam.CombinePerKey(sum).with_hot_key_fanout(fanout),
            "lists": skewed
            | beam.CombinePerKey(beam.combiners.ToListCombineFn())
            | "sort" >> beam.MapTuple(lambda k, v: (k, len(v))),
            "joined": (skewed, few)
            | beam.CoGroupByKey()
            | "cross" >> beam.FlatMapTuple(lambda k, two: [(k, len(two[0]) * n) for n in two[1]]),
        }

    found = harvest(spark_session, build, SPREAD)
    for label in ("groups", "sums", "fanned out"):
        assert found[label] == expected(sum), label
    assert found["lists"] == expected(len)
    hot = COUNT * 9 // 10
    assert found["joined"] == [("cold 0", 6), (HOT, hot), (HOT, 2 * hot)]


def test_a_hot_key_under_many_windows_is_spread(spark_session: Any) -> None:
    """Key and window together say where a group goes."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        hot = pairs(p) | beam.Filter(lambda pair: pair[0] == HOT)
        return {
            "fixed": hot
            | beam.WindowInto(FixedWindows(1000))
            | beam.GroupByKey()
            | beam.MapTuple(lambda k, v: sum(v)),
            "sliding": hot
            | "slide" >> beam.WindowInto(SlidingWindows(2000, 1000))
            | "sum" >> beam.CombinePerKey(sum)
            | beam.Values(),
        }

    found = harvest(spark_session, build, SPREAD)
    sums = [
        sum(number for number in range(start, start + 1000) if number % 10)
        for start in range(0, COUNT, 1000)
    ]
    assert found["fixed"] == sorted(sums)
    assert found["sliding"] == sorted(map(sum, zip([0, *sums], [*sums, 0], strict=True)))
    for label in ("fixed", "sliding"):
        places = [each.partition for each in found.kept[label]]
        shares = [places.count(partition) / len(places) for partition in set(places)]
        assert len(shares) > 1, label
        assert max(shares) < 0.8, label


@pytest.mark.parametrize(
    "flags",
    [(), pytest.param(REUSED_PROCESS, marks=pytest.mark.rare)],
    ids=["embedded", "process"],
)
def test_sessions_that_are_larger_than_memory(spark_session: Any, flags: tuple[str, ...]) -> None:
    """One key: a session of 24 MB, whose values are read twice, and two hundred of 40 kB."""
    value = bytes(20_000)

    def read_twice(key: str, values: Any) -> tuple[str, int, int, int]:
        return key, len(list(values)), sum(map(len, values)), sum(1 for _ in values)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        seconds = [range(start, start + 50) for start in range(0, 1200, 50)]
        seconds += [range(start, start + 2) for start in range(10_000, 210_000, 1000)]
        timed = (
            p
            | beam.Create(seconds)
            | beam.Reshuffle()
            | beam.FlatMap(lambda some: [TimestampedValue((HOT, value), each) for each in some])
        )
        windowed = timed | beam.WindowInto(
            Sessions(100), timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST
        )
        return {"all": windowed | beam.GroupByKey() | beam.MapTuple(read_twice)}

    found = harvest(spark_session, build, SPREAD, *flags)
    large, *small = sorted(found.kept["all"], key=lambda each: each.timestamp)
    assert large.value == (HOT, 1200, 24_000_000, 1200)
    assert (large.window, large.timestamp) == (IntervalWindow(0, 1299), 0)
    assert {each.value for each in small} == {(HOT, 2, 40_000, 2)}
    starts = range(10_000, 210_000, 1000)
    assert [each.window for each in small] == [IntervalWindow(s, s + 101) for s in starts]
    assert [each.timestamp for each in small] == list(starts)
