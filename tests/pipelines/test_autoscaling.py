"""A running stream changes its number of partitions, and loses and repeats nothing."""

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.job.watching.partition_advice import PartitionAdvice
from beam_spark_runner.scheduling import parallelism
from tests.harvest import harvest
from tests.pipelines.counting import Count
from tests.spark.restrictions import RESTRICTION
from tests.stateful import Number

NAMES = [f"name {number}" for number in range(8)]
COUNT = 90


class CountUntil(beam.DoFn):  # type: ignore[misc]
    """Counts until a file exists; there is always more than there is time for."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(self, element: tuple[Path, int], tracker: Any = RESTRICTION) -> Iterator[int]:
        for number in itertools.count(tracker.current_restriction().start):
            if element[0].exists():
                tracker.try_claim(element[1])
                return
            if not tracker.try_claim(number):
                return
            yield 1


@pytest.mark.timeout(300)
def test_state_timers_sources_and_windows_follow(
    spark_session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO)
    numbers = itertools.chain([2, 2, 3, 3, 1, 5, 5, 4], itertools.repeat(4))
    monkeypatch.setattr(PartitionAdvice, "following", lambda self, partitions: next(numbers))

    def build(p: beam.Pipeline) -> dict[str, Any]:
        counted = beam.ParDo(Count()).with_output_types(tuple[str, int])
        pairs = p | beam.Create([(name, COUNT) for name in NAMES]) | beam.Reshuffle() | counted
        windows = pairs | beam.WindowInto(FixedWindows(10))
        return {
            "numbered": pairs | "number" >> beam.ParDo(Number()),
            "summed": windows | beam.CombinePerKey(sum),
        }

    found = harvest(
        spark_session,
        build,
        "--streaming",
        "--autoscale=1..8",
        f"--checkpoint_dir={tmp_path}",
        "--batch_interval_millis=0",
    )
    pairs = sorted((name, number) for name in NAMES for number in range(COUNT))
    assert found["numbered"] == pairs
    assert found["summed"] == sorted(
        (name, sum(range(start, start + 10))) for name in NAMES for start in range(0, COUNT, 10)
    )
    texts = [text for text in caplog.messages if "redistributed" in text]
    assert texts == [
        f"state was redistributed: {before} partitions before, {after} now"
        for before, after in itertools.pairwise((2, 3, 1, 5, 4))
    ]


@pytest.mark.timeout(300)
def test_a_stream_that_does_not_keep_up_gets_more_partitions(
    spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallelism, "WINDOW_S", 0.5)
    has_grown, following = tmp_path / "has grown", PartitionAdvice.following

    def note(self: PartitionAdvice, partitions: int) -> int:
        wanted = following(self, partitions)
        if wanted > partitions:
            has_grown.touch()
        return wanted

    monkeypatch.setattr(PartitionAdvice, "following", note)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        counted = beam.ParDo(CountUntil()).with_output_types(int)
        ones = p | beam.Create([(has_grown, 1 << 40)]) | counted
        counts = (
            ones
            | beam.WindowInto(FixedWindows(3_600))
            | beam.CombineGlobally(beam.combiners.CountCombineFn()).without_defaults()
        )
        return {"any": counts | beam.Map(bool)}

    flags = "--streaming", "--autoscale=1..4", "--parallelism=1", "--batch_interval_millis=100"
    found = harvest(spark_session, build, *flags, f"--checkpoint_dir={tmp_path / 'commits'}")
    assert has_grown.exists()
    assert found["any"] == [True]


def test_a_batch_pipeline_refuses_the_option(spark_session: Any) -> None:
    with pytest.raises(OptionsError, match="--autoscale: the pipeline runs in batch"):
        harvest(spark_session, lambda p: {"ones": p | beam.Create([1])}, "--autoscale=1..4")
