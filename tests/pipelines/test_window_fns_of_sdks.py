"""Window fns that no Python worker can load: their SDK harness merges windows."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.testing import test_stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, AfterWatermark
from apache_beam.transforms.window import (
    IntervalWindow,
    NonMergingWindowFn,
    TimestampedValue,
    WindowFn,
)

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import BEAMS_OWN, REUSED_PROCESS, harvest, run
from tests.spark.of_the_sdk import OfTheSdk

IN_HARNESSES = (
    pytest.param(REUSED_PROCESS, id="process"),
    pytest.param(BEAMS_OWN, id="Beam's own harness", marks=pytest.mark.rare),
)


class Visits(OfTheSdk, WindowFn):  # type: ignore[misc]
    """Elements within ``gap`` seconds of each other; those before second 1,000 stay alone."""

    def __init__(self, gap: int, *, fails: bool = False) -> None:
        self._gap, self._fails = gap, fails

    def assign(self, context: WindowFn.AssignContext) -> Iterable[IntervalWindow]:
        return [IntervalWindow(context.timestamp, context.timestamp + self._gap)]

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        if self._fails:
            raise ValueError("these windows do not go together")
        together: list[IntervalWindow] = []
        for window in sorted(merge_context.windows):
            if window.start < 1000:
                continue
            if together and window.start >= max(each.end for each in together):
                self._join(together, merge_context)
                together = []
            together.append(window)
        self._join(together, merge_context)

    def _join(self, windows: list[IntervalWindow], merge_context: WindowFn.MergeContext) -> None:
        if len(windows) > 1:
            end = max(each.end for each in windows)
            merge_context.merge(windows, IntervalWindow(windows[0].start, end))

    def get_window_coder(self) -> IntervalWindowCoder:
        return IntervalWindowCoder()


class Tens(OfTheSdk, NonMergingWindowFn):  # type: ignore[misc]
    def assign(self, context: WindowFn.AssignContext) -> Iterable[IntervalWindow]:
        start = context.timestamp.micros // 10_000_000 * 10
        return [IntervalWindow(start, start + 10)]

    def get_window_coder(self) -> IntervalWindowCoder:
        return IntervalWindowCoder()


def _pairs(p: beam.Pipeline, times: list[int]) -> beam.PCollection:
    pairs = p | beam.Create([(key, time) for key in "abc" for time in times])
    return pairs | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))


def _listed(key: Any, values: Iterable[Any]) -> tuple[Any, list[Any]]:
    return key, sorted(values)


@pytest.mark.parametrize("flags", IN_HARNESSES)
def test_an_sdk_harness_merges_windows(spark_session: Any, flags: tuple[str, ...]) -> None:
    visits = [[2], [3], [1000, 1004, 1008], [2000], [3000, 3001]]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = _pairs(p, [time for visit in visits for time in visit]) | beam.WindowInto(Visits(5))
        return {
            "groups": pairs | beam.GroupByKey() | beam.MapTuple(_listed),
            "sums": pairs | beam.CombinePerKey(sum),
        }

    found = harvest(spark_session, build, *flags)
    for label, of in (("groups", list), ("sums", sum)):
        assert sorted((each.value, str(each.window)) for each in found.kept[label]) == sorted(
            ((key, of(visit)), str(IntervalWindow(visit[0], visit[-1] + 5)))
            for key in "abc"
            for visit in visits
        ), label


@pytest.mark.rare
@pytest.mark.parametrize("flags", IN_HARNESSES)
def test_triggers_fire_in_windows_of_an_sdk(spark_session: Any, flags: tuple[str, ...]) -> None:
    trigger = {
        "trigger": AfterWatermark(early=AfterCount(3)),
        "accumulation_mode": AccumulationMode.ACCUMULATING,
    }

    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = _pairs(p, [1000, 1004, 1008, 2000])
        return {
            label: pairs
            | f"into {label}" >> beam.WindowInto(window_fn, **trigger)
            | f"group {label}" >> beam.GroupByKey()
            | f"list {label}" >> beam.MapTuple(_listed)
            for label, window_fn in (("visits", Visits(5)), ("tens", Tens()))
        }

    found = harvest(spark_session, build, *flags)
    for label, begin, end in (("visits", 1000, 1013), ("tens", 1000, 1010)):
        assert sorted(
            (each.value, str(each.window), each.pane.index) for each in found.kept[label]
        ) == sorted(
            pane
            for key in "abc"
            for pane in [
                ((key, [1000, 1004, 1008]), str(IntervalWindow(begin, end)), 0),
                ((key, [1000, 1004, 1008]), str(IntervalWindow(begin, end)), 1),
                ((key, [2000]), str(IntervalWindow(2000, 2005 if label == "visits" else 2010)), 0),
            ]
        ), label


def test_an_error_of_the_window_fn_names_the_grouping_step(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> Any:
        pairs = _pairs(p, [1000, 1004]) | beam.WindowInto(Visits(5, fails=True))
        return pairs | "Group visits" >> beam.GroupByKey() | beam.MapTuple(_listed)

    with pytest.raises(BundleFailedError, match="do not go together") as raised:
        run(spark_session, build, *REUSED_PROCESS)
    assert raised.value.step == "Group visits"


@pytest.mark.rare
def test_windows_of_an_sdk_in_epochs(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        stream = (
            test_stream.TestStream()
            .advance_watermark_to(1000)
            .add_elements([TimestampedValue(("a", time), time) for time in (1000, 1004)])
            .advance_watermark_to(1006)
            .add_elements([TimestampedValue(("a", 1008), 1008)])
            .add_elements([TimestampedValue(("b", 1007), 1007)])
            .advance_watermark_to(2000)
            .add_elements([TimestampedValue(("a", 2001), 2001)])
            .advance_watermark_to_infinity()
        )
        visits = p | stream | beam.WindowInto(Visits(5)) | beam.GroupByKey()
        return {"visits": visits | beam.MapTuple(_listed)}

    found = harvest(spark_session, build, "--streaming", *REUSED_PROCESS)
    assert sorted((each.value, str(each.window)) for each in found.kept["visits"]) == [
        (("a", [1000, 1004, 1008]), str(IntervalWindow(1000, 1013))),
        (("a", [2001]), str(IntervalWindow(2001, 2006))),
        (("b", [1007]), str(IntervalWindow(1007, 1012))),
    ]
