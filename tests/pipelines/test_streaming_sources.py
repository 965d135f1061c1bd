"""Splittable DoFns without an end, in epochs."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import Metrics
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_spark_runner import SparkPortableRunner
from tests.harvest import RARE_HARNESSES, harvest
from tests.spark.restrictions import RESTRICTION
from tests.stateful import Number

QUICK = "--batch_interval_millis=50"
ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


class Count(beam.DoFn):  # type: ignore[misc]
    """Counts up to what its element says, some numbers at a time; a number is its own timestamp.

    Args:
        at_once: how many numbers it gives before it waits.
        wait_s: None: it never waits, and has to be interrupted.
        begin_s: for what it does before its first claim.
    """

    def __init__(self, at_once: int, wait_s: float | None, begin_s: float) -> None:
        self._at_once, self._wait_s, self._begin_s = at_once, wait_s, begin_s

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self,
        element: tuple[str, int],
        tracker: Any = RESTRICTION,
        estimator: Any = ESTIMATOR,
    ) -> Iterator[Any]:
        time.sleep(self._begin_s)
        position = tracker.current_restriction().start
        until = position + self._at_once
        while tracker.try_claim(position):
            yield TimestampedValue((element[0], position), position)
            position += 1
            estimator.set_watermark(Timestamp(position))
            if self._wait_s is None:
                time.sleep(0.001)
            elif position == until:
                tracker.defer_remainder(Duration(self._wait_s))
                return


def count(at_once: int = 5, wait_s: float | None = 0.0, begin_s: float = 0.0) -> beam.ParDo:
    return beam.ParDo(Count(at_once, wait_s, begin_s)).with_output_types(tuple[str, int])


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_windows_close_while_a_source_continues(spark_session: Any, flags: tuple[str, ...]) -> None:
    """The watermark comes from the estimator: nothing is late, and nothing waits for the end."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create([("a", 23), ("b", 12)]) | count(wait_s=0.1)
        groups = numbers | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()
        return {
            "groups": groups | beam.MapTuple(lambda key, values: (key, sorted(values), time.time()))
        }

    found = harvest(spark_session, build, QUICK, *flags)["groups"]
    assert [(key, values) for key, values, _ in found] == [
        ("a", list(range(10))),
        ("a", list(range(10, 20))),
        ("a", [20, 21, 22]),
        ("b", list(range(10))),
        ("b", [10, 11]),
    ]
    first, *_, last = sorted(at for _, _, at in found)
    assert last - first > 0.1


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_a_source_that_never_waits_is_interrupted(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create([("a", 400), ("b", 100)]) | count(wait_s=None)

        def see(pair: tuple[str, int]) -> tuple[str, int]:
            Metrics.counter("sources", "seen").inc()
            return pair

        return {"numbers": numbers | beam.Map(see)}

    found = harvest(spark_session, build, QUICK, *flags)
    assert found["numbers"] == [
        (key, n) for key, end in (("a", 400), ("b", 100)) for n in range(end)
    ]
    assert found.counter("seen") == 500


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_a_source_may_need_longer_than_an_epoch_to_begin(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    """Each time: it connects to a server, say."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"numbers": p | beam.Create([("a", 400)]) | count(wait_s=None, begin_s=0.3)}

    found = harvest(spark_session, build, QUICK, *flags)
    assert found["numbers"] == [("a", number) for number in range(400)]


def test_the_clock_is_the_wall_clock(spark_session: Any) -> None:
    start = time.time()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        ticks = p | PeriodicImpulse(start, start + 2.5, 0.5, apply_windowing=False)
        windowed = ticks | beam.WindowInto(FixedWindows(1, Timestamp(start)))
        keyed = windowed | beam.Map(lambda tick: (round(float(tick) - start, 1), time.time()))
        return {
            "ticks": keyed,
            "all": windowed | beam.combiners.Count.Globally().without_defaults(),
        }

    found = harvest(spark_session, build, QUICK)
    assert [tick for tick, _ in found["ticks"]] == [0, 0.5, 1, 1.5, 2]
    assert all(seen - start >= tick for tick, seen in found["ticks"])
    assert found["all"] == [1, 2, 2]


def test_a_failed_run_continues_with_what_was_deferred(spark_session: Any, tmp_path: Path) -> None:
    """Numbers before the failure have been counted once, whatever ran again."""
    flags = (f"--checkpoint_dir={tmp_path / 'checkpoints'}", QUICK)
    stop = tmp_path / "stop"
    stop.touch()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        def check(pair: tuple[str, int]) -> tuple[str, int]:
            if pair[1] == 11 and stop.exists():
                raise RuntimeError("stopped")
            return pair

        numbers = p | beam.Create([("a", 14)]) | count(at_once=4, wait_s=1)
        checked = numbers | beam.Map(check).with_output_types(tuple[str, int])
        return {"numbers": checked | beam.ParDo(Number())}

    with pytest.raises(RuntimeError, match="stopped"):
        harvest(spark_session, build, *flags)
    stop.unlink()
    assert harvest(spark_session, build, *flags)["numbers"] == [("a", n) for n in range(8, 14)]
    assert harvest(spark_session, build, *flags)["numbers"] == []  # it is done


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_delays_in_the_time_of_a_test_stream(spark_session: Any, flags: tuple[str, ...]) -> None:
    """An hour passes because the stream says so; after its end, because nothing else is left."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int]).add_elements([("a", 7)])
        events.advance_processing_time(3600).advance_processing_time(1)
        events.add_elements([("b", 2)]).advance_watermark_to_infinity()
        return {"numbers": p | events | count(at_once=2, wait_s=3600)}

    began = time.time()
    found = harvest(spark_session, build, *flags)
    assert found["numbers"] == [("a", n) for n in range(7)] + [("b", 0), ("b", 1)]
    assert time.time() - began < 3600


def test_what_is_deferred_can_be_seen(spark_session: Any) -> None:
    pipeline = beam.Pipeline(
        runner=SparkPortableRunner(spark=spark_session),
        options=PipelineOptions([QUICK]),
    )
    _ = pipeline | beam.Create([("a", 10**9), ("b", 3)]) | count(at_once=3, wait_s=3600)
    result = pipeline.run()
    try:
        gauges: dict[str, int] = {}
        deadline = time.monotonic() + 120
        while not gauges and time.monotonic() < deadline:
            found = result.metrics().query()["gauges"]
            gauges = {each.key.metric.name: each.attempted.value for each in found}
            time.sleep(0.05)
        assert gauges == {"sdf_pending_residuals": 1, "sdf_watermark_hold": 3_000}
    finally:
        began = time.monotonic()
        result.cancel()
    assert result.state == PipelineState.CANCELLED
    assert time.monotonic() - began < 60  # it slept until an hour had passed
