"""GroupByKey and what is built on it."""

import doctest
import random
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import coders
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    SlidingWindows,
    TimestampCombiner,
    TimestampedValue,
)
from apache_beam.utils.timestamp import Timestamp

from tests.harvest import SPREAD, harvest


def listed(group: tuple[Any, Iterable[Any]]) -> tuple[Any, list[Any]]:
    return group[0], sorted(group[1])


@pytest.mark.spark
def test_group_by_key(on_spark: Any) -> None:
    pairs = [(n % 97, n) for n in range(5000)]
    random.Random(1).shuffle(pairs)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        grouped = p | beam.Create(pairs) | beam.GroupByKey()
        again = (
            grouped
            | beam.Map(lambda group: (group[0] % 2, sum(group[1])))
            | "again" >> beam.GroupByKey()
        )
        return {
            "grouped": grouped | beam.Map(listed),
            "again": again | "list again" >> beam.Map(listed),
            "none": p
            | "none" >> beam.Create([]).with_output_types(tuple[int, int])
            | "group none" >> beam.GroupByKey(),
            # Values that are streams again, keys that are structures.
            "nested": grouped
            | "nest" >> beam.Map(lambda group: ((group[0] % 2, None), group[1]))
            | "group nested" >> beam.GroupByKey()
            | "sum nested" >> beam.Map(lambda group: (group[0], sum(map(sum, group[1])))),
        }

    found = harvest(on_spark, build, SPREAD)
    assert found["grouped"] == [(k, list(range(k, 5000, 97))) for k in range(97)]
    sums = [sum(range(k, 5000, 97)) for k in range(97)]
    assert found["again"] == [(0, sorted(sums[::2])), (1, sorted(sums[1::2]))]
    assert found["none"] == []
    assert found["nested"] == [((0, None), sum(sums[::2])), ((1, None), sum(sums[1::2]))]
    assert len(found.partitions("grouped")) > 1
    ((_, timestamp, window, pane, _), *_) = found.kept["grouped"]
    end_us = GlobalWindow().max_timestamp().micros // 1000 * 1000  # as Beam's wire carries it
    assert (timestamp, window) == (Timestamp(micros=end_us), GlobalWindow())
    assert (pane.is_first, pane.is_last, pane.timing) == (True, True, 1)


def _end_on_the_wire(start: int) -> float:
    """Seconds; one microsecond before a window of 10 s ends, rounded to milliseconds to zero."""
    return int(((start + 10) * 1_000_000 - 1) / 1000) / 1000


@pytest.mark.parametrize(
    ("combiner", "at"),
    [
        (None, lambda start, times: _end_on_the_wire(start)),
        (TimestampCombiner.OUTPUT_AT_EOW, lambda start, times: _end_on_the_wire(start)),
        (TimestampCombiner.OUTPUT_AT_EARLIEST, lambda start, times: min(times)),
        (TimestampCombiner.OUTPUT_AT_LATEST, lambda start, times: max(times)),
    ],
    ids=["default", "end of window", "earliest", "latest"],
)
def test_windows_and_timestamps(spark_session: Any, combiner: Any, at: Any) -> None:
    """Elements -30.. 69, one a second, before the epoch too; two keys."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = (
            p | beam.Create(range(-30, 70)) | beam.Map(lambda n: TimestampedValue((n % 2, n), n))
        )
        fixed = timed | "fixed" >> beam.WindowInto(FixedWindows(10), timestamp_combiner=combiner)
        sliding = timed | "sliding" >> beam.WindowInto(
            SlidingWindows(10, 5), timestamp_combiner=combiner
        )
        everything = timed | "all" >> beam.WindowInto(GlobalWindows(), timestamp_combiner=combiner)
        return {
            "fixed": fixed | "group fixed" >> beam.GroupByKey() | "1" >> beam.Map(listed),
            "sliding": sliding | "group sliding" >> beam.GroupByKey() | "2" >> beam.Map(listed),
            "global": everything | "group all" >> beam.GroupByKey() | "3" >> beam.Map(listed),
            "sums": fixed | "sum" >> beam.CombinePerKey(sum),
            "sliding sums": sliding | "sum sliding" >> beam.CombinePerKey(sum),
        }

    found = harvest(spark_session, build)

    def windows(step: int) -> list[tuple[tuple[int, list[int]], Any]]:
        expected: list[tuple[tuple[int, list[int]], Any]] = []
        for start in range(-40, 70, step):
            for key in (0, 1):
                times = [n for n in range(start, start + 10) if -30 <= n < 70 and n % 2 == key]
                if times:
                    expected.append(((key, times), pytest.approx(at(start, times), abs=1e-5)))
        return sorted(expected, key=lambda each: each[0])

    assert found.timed("fixed") == windows(10)
    assert found.timed("sliding") == windows(5)
    assert {each.window.start.micros for each in found.kept["fixed"]} == {
        start * 1_000_000 for start in range(-30, 70, 10)
    }
    for label, step in (("sums", 10), ("sliding sums", 5)):
        assert sorted(value for value, _ in found.timed(label)) == sorted(
            (key, sum(times)) for (key, times), _ in windows(step)
        )
    if combiner in (TimestampCombiner.OUTPUT_AT_EARLIEST, TimestampCombiner.OUTPUT_AT_LATEST):
        whole = [(k, [n for n in range(-30, 70) if n % 2 == k]) for k in (0, 1)]
        assert found.timed("global") == [((k, times), at(0, times)) for k, times in whole]


def test_many_tiny_windows(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = (
            p
            | beam.Create(range(20_000))
            | beam.Map(lambda n: TimestampedValue(("only", n), Timestamp(micros=n * 1000)))
            | beam.WindowInto(FixedWindows(0.002))
        )
        return {"groups": timed | beam.GroupByKey() | beam.Map(listed)}

    found = harvest(spark_session, build, SPREAD)
    assert found["groups"] == [("only", [n, n + 1]) for n in range(0, 20_000, 2)]
    assert len(found.partitions("groups")) > 1


class Careless(beam.DoFn):  # type: ignore[misc]
    """Treats large groups as a DoFn may: it iterates some of them in parts, twice, or later."""

    def start_bundle(self) -> None:
        self._kept: list[tuple[str, Iterable[bytes]]] = []

    def process(self, group: tuple[str, Iterable[bytes]]) -> Any:
        key, values = group
        match key:
            case "in part":
                yield key, len(next(iter(values)))
            case "twice":
                yield key, sum(map(len, values)) - sum(map(len, values))
            case "at once":
                pairs = zip(values, values, strict=True)
                yield key, sum(one == other for one, other in pairs)
            case "kept":
                self._kept.append((key, values))
            case "whole":
                yield key, sum(map(len, values))

    def finish_bundle(self) -> Any:
        for key, values in self._kept:
            yield GlobalWindows.windowed_value((key, sum(map(len, values))))


@pytest.mark.rare
def test_groups_larger_than_memory_should_be(spark_session: Any) -> None:
    size, count = 10_000, 5_000
    keys = ["in part", "twice", "at once", "kept", "whole", "never"]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        groups = (
            p
            | beam.Create([(key, part) for key in keys for part in range(10)])
            | beam.FlatMap(lambda each: ((each[0], bytes(size)) for _ in range(count // 10)))
            | beam.GroupByKey()
        )
        return {
            "read": groups | beam.ParDo(Careless()),
            # What leaves the stage as it is.
            "sent on": groups
            | beam.Filter(lambda group: group[0] == "never")
            | beam.Reshuffle()
            | beam.MapTuple(lambda key, values: (key, sum(map(len, values)))),
        }

    found = harvest(spark_session, build)
    assert found["read"] == sorted(
        [
            ("in part", size),
            ("twice", 0),
            ("at once", count),
            ("kept", size * count),
            ("whole", size * count),
        ]
    )
    assert found["sent on"] == [("never", size * count)]


@pytest.mark.spark
def test_classes_in_keys_are_coded_as_each_job_asks(on_spark: Any) -> None:
    """Spark's workers are those of the previous job, for which Beam has kept other bytes."""
    dilled = coders.DeterministicFastPrimitivesCoder(coders.FastPrimitivesCoder(), "")

    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(100)) | beam.Reshuffle()
        groups = numbers | beam.Map(lambda n: (doctest.TestResults(n, 0), n)) | beam.GroupByKey()
        return {
            "groups": groups | beam.MapTuple(lambda key, ns: (key.failed, list(ns))),
            "coded": groups | beam.MapTuple(lambda key, _: dilled.encode(key)[:30]),
        }

    expected = [(n, [n]) for n in range(100)]
    usual = harvest(on_spark, build)
    assert usual["groups"] == expected
    older = harvest(on_spark, build, "--update_compatibility_version=2.66.0")
    assert older["groups"] == expected
    assert set(usual["coded"]) != set(older["coded"])
    assert len(set(older["coded"])) == 1


def test_rows_as_keys(spark_session: Any) -> None:
    """The types of their fields are unknown, so it is up to their bytes that equal ones meet."""
    elements = [SimpleNamespace(n=n, odd={n % 2, 8}, low=n < 4) for n in range(8)]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        grouped = p | beam.Create(elements) | beam.GroupBy("odd", "low")
        return {"groups": grouped | beam.MapTuple(lambda key, group: (*key, _numbers(group)))}

    def _numbers(group: Iterable[Any]) -> list[int]:
        return sorted(element.n for element in group)

    found = harvest(spark_session, build)
    assert sorted(found["groups"], key=lambda group: group[2]) == [
        ({0, 8}, True, [0, 2]),
        ({1, 8}, True, [1, 3]),
        ({0, 8}, False, [4, 6]),
        ({1, 8}, False, [5, 7]),
    ]
