"""How many Spark jobs a batch pipeline takes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io import ReadFromText, WriteToText, fileio
from apache_beam.pvalue import AsDict, AsIter, AsMultiMap, AsSingleton
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterWatermark,
    DefaultTrigger,
    TriggerFn,
)
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from pyspark.sql import SparkSession

from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.driver import resident_task
from tests.harvest import SPREAD, run

pytestmark = pytest.mark.spark


@pytest.fixture
def jobs_of(spark_session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> "Jobs":
    """Return a function that runs a pipeline, and returns the number of its Spark jobs.

    A slow machine takes no more jobs than a fast one.
    """
    for limit in ("IDLE_S", "MAX_S"):
        monkeypatch.setattr(resident_task, limit, 600.0)

    def count(build: Callable[[beam.Pipeline], Any], *flags: str) -> int:
        context = spark_session.sparkContext
        before = pyspark_internals.jobs_so_far(context)
        run(spark_session, build, PATIENT, *flags)
        after = pyspark_internals.jobs_so_far(context)
        assert before is not None
        assert after is not None
        return after - before

    return count


Jobs = Callable[..., int]
PATIENT = "--single_task_budget=600"


def test_a_pipeline_without_side_inputs_takes_one(jobs_of: Jobs) -> None:
    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Create([("a", 1), ("b", 2)]) | beam.CombinePerKey(sum)
        pairs | beam.GroupBy(lambda pair: pair[1]) | beam.Map(str)

    assert jobs_of(build) == 1


def test_small_side_inputs_come_with_the_reports(jobs_of: Jobs) -> None:
    """One task makes them and reads them; else, the job that makes them, and one that does both."""

    def build(p: beam.Pipeline) -> None:
        pairs = p | "pairs" >> beam.Create([("a", 1), ("b", 2), ("b", 3)]) | beam.Reshuffle()
        sums = pairs | beam.CombinePerKey(sum)
        total = pairs | beam.Values() | beam.CombineGlobally(sum).without_defaults()

        def check(
            element: int, table: dict[str, int], all_: Any, one: int, many: dict[str, Any]
        ) -> None:
            assert table == {"a": 1, "b": 5}
            assert sorted(all_) == [("a", 1), ("b", 2), ("b", 3)]
            assert (one, sorted(many["b"])) == (6, [2, 3])

        main = p | "main" >> beam.Create([1, 2])
        views = AsDict(sums), AsIter(pairs), AsSingleton(total), AsMultiMap(pairs)
        main | beam.Map(check, *views)

    assert jobs_of(build) == 1
    assert jobs_of(build, SPREAD) == 2


@pytest.mark.rare
def test_a_word_count_takes_one(jobs_of: Jobs, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("to be or not to be\n" * 3)

    def build(p: beam.Pipeline) -> None:
        words = p | ReadFromText(str(tmp_path / "text")) | beam.FlatMap(str.split)
        counts = words | beam.Map(lambda word: (word, 1)) | beam.CombinePerKey(sum)
        counts | beam.MapTuple("{} {}".format) | WriteToText(str(tmp_path / "out"))

    assert jobs_of(build) == 1
    lines = [line for file in tmp_path.glob("out*") for line in file.read_text().splitlines()]
    assert sorted(lines) == ["be 6", "not 3", "or 3", "to 6"]


@pytest.mark.parametrize(
    ("writers", "trigger"),
    [
        pytest.param(
            20, AfterWatermark(early=AfterCount(1)), id="early panes", marks=pytest.mark.rare
        ),
        pytest.param(1, DefaultTrigger(), id="more destinations than a bundle may write"),
    ],
)
def test_files_of_windows_and_destinations_take_one(
    jobs_of: Jobs, tmp_path: Path, writers: int, trigger: TriggerFn
) -> None:
    """Each destination has one file in each window, as on DirectRunner."""

    def build(p: beam.Pipeline) -> None:
        numbers = p | beam.Create(range(30)) | beam.Map(lambda n: TimestampedValue(n, n))
        windows = numbers | beam.WindowInto(
            FixedWindows(10),
            trigger=trigger,
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        (
            windows
            | beam.Map(lambda n: f"{n % 3}: {n}")
            | fileio.WriteToFiles(
                str(tmp_path / "out"),
                destination=lambda line: line[0],
                sink=lambda _: fileio.TextSink(),
                file_naming=fileio.destination_prefix_naming(),
                shards=1,
                max_writers_per_bundle=writers,
            )
        )

    assert jobs_of(build, f"--temp_location={tmp_path}") == 1
    files = [sorted(file.read_text().splitlines()) for file in (tmp_path / "out").iterdir()]
    assert sorted(files) == sorted(
        sorted(f"{rest}: {n}" for n in range(start, start + 10) if n % 3 == rest)
        for start in (0, 10, 20)
        for rest in range(3)
    )


def test_large_side_inputs_are_gathered_by_tasks(jobs_of: Jobs) -> None:
    """What does not fit the reports takes another job, unless one task makes and reads them."""

    def build(p: beam.Pipeline) -> None:
        texts = (
            p | beam.Create(range(100)) | beam.Reshuffle() | beam.Map(lambda n: (n, "x" * 100_000))
        )

        def check(element: int, table: dict[int, str]) -> None:
            assert len(table) == 100
            assert all(len(text) == 100_000 for text in table.values())

        p | "main" >> beam.Create([1, 2]) | beam.Map(check, AsDict(texts))

    assert jobs_of(build, SPREAD) == 3
    assert jobs_of(build) == 1
