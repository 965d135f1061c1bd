"""Collections that are unbounded by declaration, and end all the same."""

from typing import Any

import apache_beam as beam
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows

from tests.harvest import harvest

START = 1_000_000_000  # long ago, so that nothing waits for the clock


def _ticks(count: int) -> PeriodicImpulse:
    return PeriodicImpulse(
        start_timestamp=START, stop_timestamp=START + count, fire_interval=1, apply_windowing=False
    )


def test_what_ends_can_be_grouped(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        ticks = p | "ticks" >> _ticks(12) | beam.Map(lambda time: (0, int(time - START)))
        windowed = ticks | beam.WindowInto(FixedWindows(5))
        late = windowed | "late" >> beam.Filter(lambda pair: pair[1] > 9)
        return {
            "ticks": ticks,
            "groups": windowed | beam.GroupByKey() | beam.MapTuple(lambda _, some: sorted(some)),
            "sums": windowed | beam.CombinePerKey(sum) | "summed" >> beam.Values(),
            "spread": ticks | beam.Reshuffle() | beam.Values(),
            "counted": windowed
            | beam.Map(lambda pair, some: (pair[1], len(some)), beam.pvalue.AsList(late)),
        }

    found = harvest(spark_session, build)
    assert found["spread"] == list(range(12))
    assert found["ticks"] == [(0, second) for second in range(12)]
    assert found["groups"] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11]]
    assert found["sums"] == [10, 21, 35]
    assert found["counted"] == [(second, 2 * (second > 9)) for second in range(12)]


def test_a_global_group_is_complete(spark_session: Any) -> None:
    """Beam refuses it where the pipeline is made; with its flag for that it is as in batch."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        ticks = p | "ticks" >> _ticks(5) | beam.Map(lambda time: (0, int(time - START)))
        return {"sums": ticks | beam.GroupByKey() | beam.MapTuple(lambda _, some: sum(some))}

    assert harvest(spark_session, build, "--allow_unsafe_triggers")["sums"] == [10]
