"""Windows whose coder only an SDK harness knows: they are bytes with an end to the runner."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import Coder
from apache_beam.transforms.window import TimestampedValue, WindowFn

from tests.spark.harvest import BEAMS_OWN, REUSED_PROCESS, harvest
from tests.spark.lanes import Lane, LaneCoder, Lanes
from tests.spark.of_the_sdk import OfTheSdk

pytestmark = pytest.mark.spark
IN_HARNESSES = (
    pytest.param(REUSED_PROCESS, id="process"),
    pytest.param(BEAMS_OWN, id="Beam's own harness", marks=pytest.mark.rare),
)
EVERYWHERE = (pytest.param((), id="embedded"), *IN_HARNESSES)


class CoderOfTheSdk(OfTheSdk, LaneCoder):
    """Cannot be unpickled in a Spark worker."""


class LanesOfTheSdk(OfTheSdk, Lanes):
    coder: Coder = CoderOfTheSdk()


def lanes_for(flags: tuple[str, ...]) -> WindowFn:
    return LanesOfTheSdk() if flags else Lanes()


class Joined(Lanes):
    """Both lanes of ten seconds become one."""

    def is_merging(self) -> bool:
        return True

    def merge(self, merge_context: WindowFn.MergeContext) -> None:
        tens: dict[int, list[Lane]] = {}
        for window in merge_context.windows:
            tens.setdefault(window.parts[0], []).append(window)
        for begin, lanes in tens.items():
            if len(lanes) > 1:
                merge_context.merge(lanes, Lane(begin, 0, " and odd"))


class JoinedOfTheSdk(OfTheSdk, Joined):
    coder: Coder = CoderOfTheSdk()


TIMES = [1, 2, 3, 11, 13, 24]
IN_LANES = [[1, 3], [2], [11, 13], [24]]


def _pairs(p: beam.Pipeline) -> beam.PCollection:
    pairs = p | beam.Create([(key, time) for key in "ab" for time in TIMES])
    return pairs | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))


def _listed(key: Any, values: Iterable[Any]) -> tuple[Any, list[Any]]:
    return key, sorted(values)


def _lane(times: list[int]) -> str:
    return str(Lane(times[0] // 10 * 10, times[0] % 2))


@pytest.mark.parametrize("flags", EVERYWHERE)
def test_windows_of_an_sdk_are_grouped(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = _pairs(p) | beam.WindowInto(lanes_for(flags))
        joined = pairs | "join" >> beam.WindowInto(JoinedOfTheSdk() if flags else Joined())
        spread = pairs | beam.Reshuffle()
        return {
            "groups": spread | beam.GroupByKey() | beam.MapTuple(_listed),
            "sums": pairs | beam.CombinePerKey(sum),
            "merged": joined | "merge" >> beam.GroupByKey() | "listed" >> beam.MapTuple(_listed),
        }

    found = harvest(spark_session, build, *flags)
    for label, of in (("groups", list), ("sums", sum)):
        assert sorted((each.value, str(each.window)) for each in found.kept[label]) == sorted(
            ((key, of(times)), _lane(times)) for key in "ab" for times in IN_LANES
        ), label
    assert sorted((each.value, str(each.window)) for each in found.kept["merged"]) == sorted(
        ((key, times), lane)
        for key in "ab"
        for times, lane in (
            ([1, 2, 3], "even of 0 and odd"),
            ([11, 13], "odd of 10"),
            ([24], "even of 20"),
        )
    )
