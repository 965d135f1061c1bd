"""How TestStreams are played: several in one pipeline, and many epochs in one Spark task."""

import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.errors import SparkJobError
from beam_spark_runner.spark.driver import resident_task
from beam_spark_runner.spark.driver.resident_task import ResidentTask
from tests.harvest import RARE_HARNESSES, harvest


def pairs(*times: int, key: str = "a") -> list[TimestampedValue]:
    """Return pairs of a key and a number, which is also the second of its timestamp."""
    return [TimestampedValue((key, time), time) for time in times]


def stream() -> Stream:
    return Stream().with_output_types(tuple[str, int])


def as_lists(key: str, values: Any) -> tuple[str, list[int]]:
    return key, sorted(values)


class Since(beam.DoFn):  # type: ignore[misc]
    """Says which elements have come until the clock has reached a time."""

    SEEN = BagStateSpec("seen", VarIntCoder())
    DUE = TimerSpec("due", TimeDomain.REAL_TIME)

    def process(
        self,
        pair: tuple[str, int],
        seen: Any = beam.DoFn.StateParam(SEEN),
        due: Any = beam.DoFn.TimerParam(DUE),
    ) -> None:
        seen.add(pair[1])
        due.set(Timestamp(10))

    @on_timer(DUE)  # type: ignore[untyped-decorator]
    def wake(
        self, key: Any = beam.DoFn.KeyParam, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, sorted(seen.read())
        seen.clear()


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_streams_take_turns(spark_session: Any, flags: tuple[str, ...]) -> None:
    """Each has watermarks of its own, until it ends; they have one clock."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        one = stream().add_elements(pairs(1)).advance_watermark_to(20).add_elements(pairs(2))
        one.advance_processing_time(6).add_elements(pairs(21)).advance_watermark_to_infinity()
        other = Stream().add_elements(pairs(3), tag="left").add_elements(pairs(4), tag="right")
        other.advance_processing_time(4).add_elements(pairs(5), tag="left")
        ones = p | "one" >> one
        others = p | "other" >> other
        left = others["left"] | "typed" >> beam.Map(tuple).with_output_types(tuple[str, int])
        both = (ones, left) | beam.Flatten()

        def grouped(label: str, values: Any) -> Any:
            windowed = values | f"{label} in windows" >> beam.WindowInto(FixedWindows(10))
            return (
                windowed
                | label >> beam.GroupByKey()
                | f"{label} as lists" >> beam.MapTuple(as_lists)
            )

        return {
            "ones": grouped("Ones", ones),
            "both": grouped("Both", both),
            "right": others["right"],
            "since": both | "Since" >> beam.ParDo(Since()),
        }

    found = harvest(spark_session, build, *flags)
    # For the first stream alone, 2 is late; with the other one, which has no watermark, it is not.
    assert found["ones"] == [("a", [1]), ("a", [21])]
    assert found["both"] == [("a", [1, 2, 3, 5]), ("a", [21])]
    assert found["right"] == [("a", 4)]
    # When 5 and 21 come, the clock has reached 10.
    assert sorted(found["since"]) == [("a", [1, 2, 3]), ("a", [5]), ("a", [21])]


@pytest.mark.spark
def test_epochs_that_emit_much_are_exchanged_by_spark(
    on_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first such epoch on: it is run again, and each element counts once."""
    monkeypatch.setattr(resident_task, "MAX_BYTES", 20_000)
    sizes: list[int | None] = []
    run = ResidentTask.run_epoch

    def noted(task: ResidentTask, *arguments: Any) -> Any:
        reports = run(task, *arguments)
        sizes.append(None if reports is None else len(reports))
        return reports

    monkeypatch.setattr(ResidentTask, "run_epoch", noted)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1)).add_elements(pairs(*range(2, 500)))
        events.add_elements(pairs(3)).advance_watermark_to_infinity()
        groups = p | events | beam.WindowInto(FixedWindows(1000)) | beam.GroupByKey()
        return {"sizes": groups | beam.MapTuple(lambda key, values: (key, len(list(values))))}

    assert harvest(on_spark, build)["sizes"] == [("a", 500)]
    assert len(sizes) == 2
    assert sizes[0] is not None
    assert sizes[1] is None


@pytest.mark.spark
@pytest.mark.parametrize("is_parallel", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_one_spark_task_runs_many_epochs(on_spark: Any, is_parallel: bool) -> None:
    """Their tasks of all levels and partitions, unless the option asks for more."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1)).add_elements(pairs(2, key="b"))
        for second in range(3, 10):
            events.advance_watermark_to(second)
        groups = p | events | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()
        return {"lists": groups | beam.MapTuple(as_lists) | beam.Reshuffle() | beam.Map(tuple)}

    tracker = on_spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup())
    flags = ["--parallelism=2", *(["--parallel_test_streams"] if is_parallel else [])]
    found = harvest(on_spark, build, *flags)
    assert found["lists"] == [("a", [1]), ("b", [2])]
    jobs = sorted(set(tracker.getJobIdsForGroup()) - before)
    assert {len(tracker.getJobInfo(job).stageIds) for job in jobs} == {3 if is_parallel else 1}
    epochs = 10
    assert len(jobs) >= epochs if is_parallel else len(jobs) < epochs


def die_at(number: int) -> int:
    """End the Python worker, as a crash of native code does."""
    if number == 2:
        os._exit(3)
    return number


@pytest.mark.spark
def test_a_worker_that_dies_fails_the_pipeline(on_spark: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream().add_elements(pairs(1)).add_elements(pairs(2))
        return {"numbers": p | events | "Die" >> beam.MapTuple(lambda _, number: die_at(number))}

    with pytest.raises(SparkJobError, match="Die"):
        harvest(on_spark, build)
