"""Splittable DoFns that stop early: what they defer is processed later, once."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.metrics import MetricsFilter
from apache_beam.transforms.periodicsequence import PeriodicImpulse, PeriodicSequence
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import harvest, run
from tests.spark.restrictions import RESTRICTION, Counting

ESTIMATOR = beam.DoFn.WatermarkEstimatorParam(ManualWatermarkEstimator.default_provider())


class Defer(beam.DoFn):  # type: ignore[misc]
    """Counts one step per bundle."""

    def __init__(self, delay_s: float | None = None) -> None:
        self._delay_s = delay_s

    def process(
        self, element: tuple[str, int], tracker: Any = RESTRICTION
    ) -> Iterator[tuple[str, int, float]]:
        position = tracker.current_restriction().start
        if tracker.try_claim(position):
            yield element[0], position, time.time()
            tracker.defer_remainder(None if self._delay_s is None else Duration(self._delay_s))


def test_every_step_is_taken_once(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        steps = (
            p
            | beam.Create([(str(name), 1 + name % 7) for name in range(40)])
            | beam.ParDo(Defer())
            | beam.MapTuple(lambda name, position, _: (name, position))
        )
        counted = steps | beam.combiners.Count.PerKey()
        return {"steps": steps, "counted": counted}

    found = harvest(spark_session, build)
    assert found["steps"] == sorted((str(n), i) for n in range(40) for i in range(1 + n % 7))
    assert found["counted"] == sorted((str(n), 1 + n % 7) for n in range(40))


def test_a_delay_is_waited_for(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"steps": p | beam.Create([("a", 4)]) | beam.ParDo(Defer(0.3))}

    steps = harvest(spark_session, build)["steps"]
    assert [position for _, position, _ in steps] == [0, 1, 2, 3]
    times = [at for _, _, at in steps]
    assert all(later - sooner >= 0.3 for sooner, later in itertools.pairwise(times))


def test_elements_keep_timestamp_and_windows(spark_session: Any) -> None:
    class Stamp(beam.DoFn):  # type: ignore[misc]
        def process(
            self,
            element: tuple[str, int],
            timestamp: Any = beam.DoFn.TimestampParam,
            window: Any = beam.DoFn.WindowParam,
            tracker: Any = RESTRICTION,
        ) -> Iterator[Any]:
            for name, position, _ in Defer().process(element, tracker):
                yield name, position, int(timestamp), int(window.start)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        timed = p | beam.Create([("a", 3)]) | beam.Map(lambda x: TimestampedValue(x, 15))
        return {"steps": timed | beam.WindowInto(SlidingWindows(20, 10)) | beam.ParDo(Stamp())}

    found = harvest(spark_session, build)
    assert found["steps"] == [("a", i, 15, start) for i in range(3) for start in (0, 10)]
    assert {each.timestamp for each in found.kept["steps"]} == {Timestamp(15)}


def test_an_estimator_keeps_its_state(spark_session: Any) -> None:
    class Estimate(beam.DoFn):  # type: ignore[misc]
        def process(
            self,
            element: tuple[str, int],
            tracker: Any = RESTRICTION,
            estimator: Any = ESTIMATOR,
        ) -> Iterator[Any]:
            position = tracker.current_restriction().start
            if tracker.try_claim(position):
                before = estimator.current_watermark()
                yield position, None if before is None else int(before)
                estimator.set_watermark(Timestamp(100 + position))
                tracker.defer_remainder()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"seen": p | beam.Create([("a", 3)]) | beam.ParDo(Estimate())}

    assert harvest(spark_session, build)["seen"] == [(0, None), (1, 100), (2, 101)]


def test_bundles_begin_and_end_around_each_replay(spark_session: Any) -> None:
    class PerBundle(beam.DoFn):  # type: ignore[misc]
        def start_bundle(self) -> None:
            self._seen: list[int] = []

        def process(self, element: tuple[str, int, float]) -> None:
            self._seen.append(element[1])

        def finish_bundle(self) -> Iterator[Any]:
            yield beam.utils.windowed_value.WindowedValue(
                tuple(self._seen), 0, (beam.window.GlobalWindow(),)
            )

    def build(p: beam.Pipeline) -> dict[str, Any]:
        steps = p | beam.Create([("a", 3)]) | beam.ParDo(Defer())
        return {"bundles": steps | beam.ParDo(PerBundle())}

    assert harvest(spark_session, build)["bundles"] == [(0,), (1,), (2,)]


def test_periodic_sequences_that_wait_for_the_clock(spark_session: Any) -> None:
    """Two of them at a time, then grouped by windows."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        now = time.time()
        sequence = p | beam.Create([(now, now + 1.5, 0.5)]) | PeriodicSequence()
        late_by = sequence | "late" >> beam.Map(lambda at: time.time() - float(at))
        impulse = p | PeriodicImpulse(
            start_timestamp=now, stop_timestamp=now + 1.5, fire_interval=0.5, apply_windowing=False
        )
        counts = (
            impulse
            | beam.WindowInto(FixedWindows(3600))
            | "one" >> beam.Map(lambda _: ("ticks", 1))
            | beam.CombinePerKey(sum)
            | beam.Values()
        )
        return {"late_by": late_by, "counts": counts}

    began = time.time()
    found = harvest(spark_session, build)
    assert len(found["late_by"]) == 3
    assert sum(found["counts"]) == 3
    assert all(seconds >= 0 for seconds in found["late_by"])
    assert time.time() - began >= 1


class EndlessTracker(OffsetRestrictionTracker):  # type: ignore[misc]
    def is_bounded(self) -> bool:
        return False


class CountingWithoutEnd(Counting):
    """``truncate`` leaves nothing, as Beam has it for what is unbounded."""

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return EndlessTracker(restriction)


class CountingHalf(CountingWithoutEnd):
    def truncate(self, element: tuple[str, int], restriction: OffsetRange) -> OffsetRange:
        return OffsetRange(restriction.start, restriction.stop // 2)


class CountAll(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> Iterator[Any]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield element[0], position
            position += 1


WITHOUT_END = beam.DoFn.RestrictionParam(CountingWithoutEnd())
HALF = beam.DoFn.RestrictionParam(CountingHalf())


class CountAllWithoutEnd(CountAll):
    def process(self, element: tuple[str, int], tracker: Any = WITHOUT_END) -> Iterator[Any]:
        yield from super().process(element, tracker)


class CountHalf(CountAll):
    def process(self, element: tuple[str, int], tracker: Any = HALF) -> Iterator[Any]:
        yield from super().process(element, tracker)


def test_restrictions_are_truncated_when_the_pipeline_drains(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        elements = p | beam.Create([("a", 10), ("b", 4)])
        return {
            "bounded": elements | "bounded" >> beam.ParDo(CountAll()),
            "unbounded": elements | "unbounded" >> beam.ParDo(CountAllWithoutEnd()),
            "half": elements | "half" >> beam.ParDo(CountHalf()),
        }

    def counted(**lengths: int) -> list[tuple[str, int]]:
        return [(name, step) for name, length in lengths.items() for step in range(length)]

    found = harvest(spark_session, build, "--drain")
    assert found["bounded"] == counted(a=10, b=4)
    assert found["unbounded"] == []
    assert found["half"] == counted(a=5, b=2)
    found = harvest(spark_session, build)
    assert found["unbounded"] == found["half"] == counted(a=10, b=4)


class FailingTracker(OffsetRestrictionTracker):  # type: ignore[misc]
    def try_split(self, fraction_of_remainder: float) -> Any:
        raise RuntimeError("the tracker is broken")


class Failing(Counting):
    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return FailingTracker(restriction)


FAILING = beam.DoFn.RestrictionParam(Failing())


class DeferFailing(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: Any = FAILING) -> Iterator[int]:
        if tracker.try_claim(0):
            yield 0
            tracker.defer_remainder()


class LeaveUnfinished(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> Iterator[int]:
        if tracker.try_claim(0):
            yield 0


@pytest.mark.parametrize(
    ("fn", "cause"),
    [
        pytest.param(DeferFailing(), "the tracker is broken", id="try_split raises"),
        pytest.param(LeaveUnfinished(), "has not been claimed", id="a claim is unfinished"),
    ],
)
def test_broken_trackers_fail_their_step(spark_session: Any, fn: Any, cause: str) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([("a", 5)]) | "count" >> beam.ParDo(fn)

    with pytest.raises(BundleFailedError, match=rf"count: .*{cause}"):
        run(spark_session, build)


class FailLater(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> Iterator[int]:
        position = tracker.current_restriction().start
        if position == 2:
            raise ValueError("not a third time")
        if tracker.try_claim(position):
            yield position
            tracker.defer_remainder()


def test_what_a_replay_raises_is_charged_to_its_step(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([("a", 5)]) | "count" >> beam.ParDo(FailLater())

    with pytest.raises(BundleFailedError, match=r"count: ValueError: not a third time"):
        run(spark_session, build)


class Poll(beam.DoFn):  # type: ignore[misc]
    """Never finds anything later than a hundred seconds."""

    def process(
        self, element: tuple[str, int], tracker: Any = RESTRICTION, estimator: Any = ESTIMATOR
    ) -> None:
        if tracker.try_claim(tracker.current_restriction().start):
            estimator.set_watermark(Timestamp(100))
            tracker.defer_remainder(Duration(0.2))


def test_one_that_defers_forever_is_seen_and_can_be_cancelled(spark_session: Any) -> None:
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark_session))
    pipeline | beam.Create([("a", 1 << 40)]) | beam.ParDo(Poll())
    result = pipeline.run()

    def gauges() -> dict[str, int]:
        found = result.metrics().query(MetricsFilter().with_step("ParDo(Poll)/Process"))["gauges"]
        return {each.key.metric.name: each.attempted.value for each in found}

    deadline = time.monotonic() + 60
    expected = {"sdf_pending_residuals": 1, "sdf_watermark_hold": 100_000}  # milliseconds
    while gauges() != expected:
        assert result.wait_until_finish(duration=200) == "RUNNING"
        assert time.monotonic() < deadline
    began = time.monotonic()
    assert result.cancel() == "CANCELLED"
    assert time.monotonic() - began < 15
