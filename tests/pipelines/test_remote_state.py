"""State and timers of steps in SDK harnesses next to the Python workers."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows, TimestampedValue

from tests.harvest import LOOPBACK, REUSED_PROCESS, harvest
from tests.stateful import Collect, CountGroups, Mixed, Number, timed

pytestmark = pytest.mark.grpc


def build(p: beam.Pipeline) -> dict[str, Any]:
    pairs = p | beam.Create([(f"k{n % 7}", n) for n in range(50)])
    in_order = (
        p
        | "few" >> beam.Create([(key, n) for key in "ab" for n in (1, 2, 7, 8)])
        | "group few" >> beam.GroupByKey()
        | "in order" >> beam.FlatMapTuple(lambda key, values: [(key, n) for n in sorted(values)])
    )
    in_time = p | timed([(key, n) for key in "ab" for n in (12, 1, 9)])
    grouped = (
        in_time
        | "into sessions" >> beam.WindowInto(Sessions(5))
        | "group sessions" >> beam.GroupByKey()
    )
    return {
        "numbered": pairs | beam.ParDo(Number()),
        "numbered twice": pairs
        | "number" >> beam.ParDo(Number())
        | "by number" >> beam.MapTuple(lambda _, number: (str(number), number))
        | "again" >> beam.ParDo(Number())
        | "numbers" >> beam.Values(),
        "collected": in_time
        | "into windows" >> beam.WindowInto(SlidingWindows(20, 10))
        | "collect" >> beam.ParDo(Collect()),
        "mixed": in_order | beam.ParDo(Mixed()),
        "groups": grouped | beam.ParDo(CountGroups()),
        "batches": pairs
        | "stamp" >> beam.Map(lambda pair: TimestampedValue(pair, pair[1]))
        | beam.WindowInto(FixedWindows(100))
        | beam.GroupIntoBatches(5, max_buffering_duration_secs=100)
        | "sizes" >> beam.MapTuple(lambda _, batch: len(batch)),
    }


@pytest.mark.parametrize("flags", [REUSED_PROCESS, LOOPBACK], ids=["process", "loopback"])
def test_state_and_timers(spark_session: Any, flags: tuple[str, ...]) -> None:
    found = harvest(spark_session, build, *flags)
    sizes = [8 if key == 0 else 7 for key in range(7)]
    assert found["numbered"] == [(f"k{key}", n) for key in range(7) for n in range(sizes[key])]
    assert found["numbered twice"] == sorted([*range(7)] * 7 + [0])
    assert found["collected"] == sorted(
        (key, n) for key in "ab" for n in ([1, 9], [1, 9, 12], [12])
    )
    for each in found.kept["collected"]:
        assert each.timestamp == each.window.end
    assert found["mixed"] == sorted(
        (key, *seen)
        for key in "ab"
        for seen in [
            (1, None, [], [], 0, []),
            (2, "1", [1, 1], [1], 1, [(1, "1!")]),
            (7, "2", [1, 1, 2, 2], [0, 1], 3, [(1, "1!"), (2, "2!")]),
            (8, None, [], [], 0, [(1, "1!")]),
        ]
    )
    assert found["groups"] == [(key, 1, n) for key in "ab" for n in ([1], [9, 12])]
    assert found["batches"] == [2] * 6 + [3] + [5] * 7
