"""Splittable DoFns that leave work to other cores: rounds, and each step taken once."""

import gzip
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import fastavro
import pytest
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Duration

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import PROCESS, Harvest, harvest, partition_of_task, run
from tests.spark.restrictions import RESTRICTION, Counting


class Count(beam.DoFn):  # type: ignore[misc]
    """Takes a while for each step."""

    def __init__(self, step_s: float = 0.02, pause_at: int = -1) -> None:
        self._step_s, self._pause_at = step_s, pause_at
        self._steps = beam.metrics.Metrics.counter("test", "steps")

    def process(
        self, element: tuple[str, int], tracker: Any = RESTRICTION
    ) -> Iterator[tuple[str, int]]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            time.sleep(self._step_s)
            self._steps.inc()
            yield element[0], position
            position += 1
            if position == self._pause_at:
                tracker.defer_remainder(Duration(0.5))


def steps_of(*elements: tuple[str, int]) -> list[tuple[str, int]]:
    return sorted((name, position) for name, count in elements for position in range(count))


@pytest.mark.spark
def test_one_long_restriction_is_spread(on_spark: Any) -> None:
    elements = [("long", 120), ("short", 3)]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        steps = p | beam.Create(elements) | "count" >> beam.ParDo(Count())
        where = steps | "where" >> beam.Map(lambda step: (*step, partition_of_task()))
        counts = where | beam.Map(lambda step: step[0]) | beam.combiners.Count.PerElement()
        again = counts | beam.Reshuffle() | "again" >> beam.Map(lambda pair: pair)
        return {"steps": steps, "where": where, "counts": counts, "again": again}

    found = harvest(on_spark, build, "--sdf_round_budget=0.3")
    assert found["steps"] == steps_of(*elements)
    assert found["counts"] == found["again"] == [("long", 120), ("short", 3)]
    tasks = {task for name, _, task in found["where"] if name == "long"}
    assert len(tasks) == 2
    assert found.counter("steps") == 123
    gauges = {
        each.key.metric.name: (each.key.step, each.committed.value)
        for each in found.result.metrics().query()["gauges"]
    }
    assert gauges == {
        "sdf_pending_residuals": ("count/Process", 0),
        "sdf_watermark_hold": ("count/Process", MAX_TIMESTAMP.micros // 1000),
    }


@pytest.mark.rare
@pytest.mark.grpc
def test_in_a_separate_sdk_harness(spark_session: Any) -> None:
    """Elements that the SDK has got and not begun come back, too."""
    elements = [("long", 60), *((f"short {number}", 2) for number in range(20))]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        steps = p | beam.Create(elements) | beam.ParDo(Count(0.03, pause_at=50))
        return {"steps": steps, "counts": steps | beam.combiners.Count.PerKey()}

    flags = (*PROCESS, "--sdf_round_budget=0.4")
    found = harvest(spark_session, build, *flags)
    assert found["steps"] == steps_of(*elements)
    assert found["counts"] == sorted(elements)


def test_one_after_the_other(spark_session: Any) -> None:
    """A splittable DoFn after a grouping after a splittable DoFn; both leave work."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        steps = p | beam.Create([("a", 40)]) | "one" >> beam.ParDo(Count())
        grouped = steps | beam.GroupByKey() | beam.MapTuple(lambda name, some: (name, len([*some])))
        others = grouped | "other" >> beam.ParDo(Count())
        return {"grouped": grouped, "sums": others | beam.combiners.Count.PerKey()}

    found = harvest(spark_session, build, "--sdf_round_budget=0.2")
    assert found["grouped"] == [("a", 40)]
    assert found["sums"] == [("a", 40)]


def test_what_is_deferred_is_left_with_its_time(spark_session: Any) -> None:
    elements = [("a", 30), ("b", 30)]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"steps": p | beam.Create(elements) | beam.ParDo(Count(0.01, pause_at=10))}

    began = time.time()
    found = harvest(spark_session, build, "--sdf_round_budget=0.2")
    assert found["steps"] == steps_of(*elements)
    assert time.time() - began > 0.7


def test_branches_and_side_inputs(spark_session: Any) -> None:
    """What other stages of the segment make is there once, and so is what is looked up."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        names = p | beam.Create([("long", 60)])
        steps = names | "count" >> beam.ParDo(Count())
        other = names | "other" >> beam.Map(lambda pair: ("other", 1))
        timed = (steps, other) | beam.Flatten() | beam.Map(lambda x: TimestampedValue(x, x[1]))
        windowed = timed | beam.WindowInto(FixedWindows(30)) | beam.GroupByKey()
        groups = windowed | "sizes" >> beam.MapTuple(lambda name, some: (name, len([*some])))
        total = steps | beam.combiners.Count.Globally()
        seen = names | "seen" >> beam.Map(lambda pair, total: total, beam.pvalue.AsSingleton(total))
        listed = names | "listed" >> beam.Map(lambda _, all: len(all), beam.pvalue.AsList(steps))
        return {"groups": groups, "seen": seen, "listed": listed}

    found = harvest(spark_session, build, "--sdf_round_budget=0.3")
    assert found["groups"] == [("long", 30), ("long", 30), ("other", 1)]
    assert found["seen"] == found["listed"] == [60]


def _slowly(value: Any) -> Any:
    time.sleep(0.001)
    return value


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_is_read_once(spark_session: Any, tmp_path: Path, compressed: bool) -> None:
    check_how_a_file_is_read(spark_session, tmp_path, compressed)


@pytest.mark.spark
@pytest.mark.rare
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_is_read_by_several_tasks(on_spark: Any, tmp_path: Path, compressed: bool) -> None:
    found = check_how_a_file_is_read(on_spark, tmp_path, compressed)
    assert len(found["where"]) == (1 if compressed else 2)


def check_how_a_file_is_read(spark: Any, tmp_path: Path, compressed: bool) -> Harvest:
    """Beam's sources are cut while they are read; those that cannot be are left alone."""
    path = tmp_path / ("lines.txt.gz" if compressed else "lines.txt")
    text = "".join(f"line {number:05} {'x' * (number % 90)}\n" for number in range(2_000)).encode()
    path.write_bytes(gzip.compress(text) if compressed else text)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        lines = p | beam.io.ReadFromText(str(path)) | "slowly" >> beam.Map(_slowly)
        where = lines | "where" >> beam.Map(lambda _: partition_of_task()) | beam.Distinct()
        return {"lines": lines, "where": where, "count": lines | beam.combiners.Count.Globally()}

    found = harvest(spark, build, "--sdf_round_budget=0.3")
    assert found["lines"] == text.decode().splitlines()
    assert found["count"] == [2_000]
    return found


def test_avro_is_read_once(spark_session: Any, tmp_path: Path) -> None:
    path = tmp_path / "numbers.avro"
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}
    with path.open("wb") as file:
        fastavro.writer(file, schema, ({"n": n} for n in range(1_500)), sync_interval=200)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        records = p | beam.io.ReadFromAvro(str(path)) | "slowly" >> beam.Map(_slowly)
        return {"numbers": records | "number" >> beam.Map(lambda record: record["n"])}

    found = harvest(spark_session, build, "--sdf_round_budget=0.3")
    assert found["numbers"] == list(range(1_500))


class Unsplittable(OffsetRestrictionTracker):  # type: ignore[misc]
    def try_split(self, fraction_of_remainder: float) -> None:
        return None


class UnsplittableProvider(Counting):
    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return Unsplittable(restriction)


UNSPLITTABLE = beam.DoFn.RestrictionParam(UnsplittableProvider())


class CountUnsplittable(Count):
    def process(
        self, element: tuple[str, int], tracker: Any = UNSPLITTABLE
    ) -> Iterator[tuple[str, int]]:
        yield from super().process(element, tracker)


def test_a_tracker_that_does_not_split(spark_session: Any) -> None:
    elements = [("a", 20), ("b", 20), ("c", 20)]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"steps": p | beam.Create(elements) | beam.ParDo(CountUnsplittable())}

    assert harvest(spark_session, build, "--sdf_round_budget=0.1")["steps"] == steps_of(*elements)


class Broken(OffsetRestrictionTracker):  # type: ignore[misc]
    def try_split(self, fraction_of_remainder: float) -> Any:
        raise RuntimeError("the tracker is broken")


class BrokenProvider(Counting):
    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return Broken(restriction)


BROKEN = beam.DoFn.RestrictionParam(BrokenProvider())


class CountBroken(Count):
    def process(self, element: tuple[str, int], tracker: Any = BROKEN) -> Iterator[tuple[str, int]]:
        yield from super().process(element, tracker)


def test_a_tracker_that_raises_when_it_is_split(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Create([("a", 50)]) | "count" >> beam.ParDo(CountBroken())

    with pytest.raises(BundleFailedError, match=r"count: RuntimeError: the tracker is bro"):
        run(spark_session, build, "--sdf_round_budget=0.1")


def test_without_rounds(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        steps = p | beam.Create([("long", 40)]) | beam.ParDo(Count())
        return {"where": steps | beam.Map(lambda _: partition_of_task())}

    assert len(set(harvest(spark_session, build, "--sdf_round_budget=0")["where"])) == 1
