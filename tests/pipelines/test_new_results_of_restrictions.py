"""Splittable DoFns that send chunks of new values rather than yield them one by one."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue, create

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.portable.monitoring import element_counts
from tests.harvest import RARE_HARNESSES, harvest, run
from tests.spark.restrictions import RESTRICTION

_CHUNK = 100
_WINDOWS = (GlobalWindow(),)


class Count(beam.DoFn):  # type: ignore[misc]
    """Counts in pairs, with a timestamp for each; gives tens to another output one by one."""

    send_new_results: Callable[[list[Any], list[WindowedValue]], None] | None = None

    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> Iterator[Any]:
        name, count = element
        restriction = tracker.current_restriction()
        for start in range(restriction.start, count, _CHUNK):
            numbers = range(start, min(start + _CHUNK, count))
            # One by one: a split may have left the first of them to this bundle.
            claimed = [*itertools.takewhile(tracker.try_claim, numbers)]
            if not claimed:
                return
            values = [(name, [number]) for number in claimed]
            times_us = [number * 1_000_000 for number in claimed]
            windowed = [*map(create, values, times_us, itertools.repeat(_WINDOWS))]
            if self.send_new_results is None:
                yield from windowed
            else:
                self.send_new_results(values, windowed)
            yield beam.pvalue.TaggedOutput("chunks", start)
            if len(claimed) < len(numbers):
                return


def counted(p: beam.Pipeline) -> Any:
    return (
        p
        | beam.Create([("a", 1_050), ("b", 30)])
        | "count" >> beam.ParDo(Count()).with_outputs("chunks", main="pairs")
    )


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_they_arrive_with_their_times_at_all_readers(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs, chunks = counted(p)
        return {
            "chunks": chunks,
            "numbers": pairs | "number" >> beam.Map(lambda pair: pair[1][0]),
            "sums": pairs
            | beam.MapTuple(lambda name, numbers: (name, numbers[0]))
            | beam.WindowInto(FixedWindows(1_000))
            | beam.CombinePerKey(sum),
        }

    found = harvest(spark_session, build, *flags)
    assert found.timed("numbers") == sorted((n, float(n)) for n in (*range(1_050), *range(30)))
    assert found["chunks"] == [0, *range(0, 1_050, _CHUNK)]
    assert sorted(found["sums"]) == [
        ("a", sum(range(1_000, 1_050))),
        ("a", sum(range(1_000))),
        ("b", sum(range(30))),
    ]


def test_each_of_them_is_counted(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        counted(p).pairs | "next" >> beam.Map(lambda pair: pair)

    counts = [*element_counts(run(spark_session, build)._job.attempted()).values()]
    assert counts.count(1_080) == 2  # of "count" and of "next"
    assert counts.count(12) == 1  # the chunks


def fail(pair: tuple[str, list[int]]) -> float:
    return 1 / (pair[1][0] - 700)


class FailOneByOne(beam.DoFn):  # type: ignore[misc]
    """Does not take chunks, because of its parameter."""

    def process(self, pair: tuple[str, list[int]], at: Any = beam.DoFn.TimestampParam) -> None:
        if pair[1] == [700]:
            raise StopIteration("at 700")


@pytest.mark.parametrize(
    ("step", "cause"),
    [(beam.Map(fail), "ZeroDivisionError"), (beam.ParDo(FailOneByOne()), "StopIteration: at 700")],
)
def test_an_error_downstream_names_its_own_step(spark_session: Any, step: Any, cause: str) -> None:
    def build(p: beam.Pipeline) -> None:
        counted(p).pairs | "fails" >> step

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, build)
    assert raised.value.step == "fails"
    assert cause in str(raised.value)
    assert "Element: ('a', [700])" in str(raised.value)
