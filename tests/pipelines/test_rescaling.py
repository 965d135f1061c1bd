"""Streaming pipelines that continue with another number of partitions."""

import logging
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows

from tests.harvest import RARE_HARNESSES, harvest_on
from tests.pipelines.counting import Count
from tests.spark.asking import Asking
from tests.spark.random_streams.comparing import check_dropped, check_same
from tests.spark.random_streams.model.play import play
from tests.spark.random_streams.recipes import draw_pack
from tests.spark.random_streams.running import asking_for, run_pack
from tests.spark.restarting import Rescaled
from tests.stateful import Number

PACK = 12
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.rare) for seed in range(1, 4))]
NAMES = [f"name {number}" * (100 if number % 2 else 1) for number in range(12)]
COUNT = 60


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_pipelines_give_the_same(spark_session: Any, tmp_path: Path, seed: int) -> None:
    """With 2, 5, 1, 3 and 4 partitions."""
    pack = draw_pack(1000 + seed, PACK)
    runner = Rescaled(asking_for(spark_session, pack), 3, (2, 5, 1, 3, 4))
    ours, dropped = run_pack(runner, pack, f"--checkpoint_dir={tmp_path}")
    model, dropped_by_model = play(pack.script, pack.recipes)
    check_same(ours, model, pack, pack.recipes, "by the model")
    check_dropped(dropped, dropped_by_model, pack)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_sources_and_elements_that_wait_are_divided(
    spark_session: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    flags: tuple[str, ...],
) -> None:
    """Residuals, side inputs in parts, stable input, and input that is sorted by time."""
    caplog.set_level(logging.INFO)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        counted = beam.ParDo(Count()).with_output_types(tuple[str, int])
        numbers = p | beam.Create([(name, COUNT) for name in NAMES]) | beam.Reshuffle() | counted
        rates = p | "rate" >> beam.Create([("rate", COUNT)]) | "rates" >> counted | beam.Values()
        rates = rates | "rates in windows" >> beam.WindowInto(FixedWindows(4))
        rated = numbers | beam.WindowInto(FixedWindows(4))
        return {
            "rated": rated | beam.Map(lambda pair, some: (*pair, *some), beam.pvalue.AsList(rates)),
            "stable": numbers | "stable" >> beam.ParDo(Number()),
            "sorted": numbers | "sorted" >> beam.ParDo(Number()),
            "seen": numbers | "seen" >> beam.Map(lambda pair: pair),
        }

    asking = Asking(spark_session, stable=["stable", "seen"], in_order=["sorted"])
    runner = Rescaled(asking, 4, (3, 2, 5, 1))
    fast = f"--checkpoint_dir={tmp_path}", "--batch_interval_millis=0"
    found = harvest_on(runner, build, *fast, *flags)
    expected = sorted((name, number) for name in NAMES for number in range(COUNT))
    for label in "stable", "sorted", "seen":
        assert found[label] == expected
    assert [(name, number, *sorted(some)) for name, number, *some in found["rated"]] == [
        (name, number, *range(number // 4 * 4, number // 4 * 4 + 4)) for name, number in expected
    ]
    texts = [text for text in caplog.messages if "redistributed" in text]
    assert texts == [
        f"state was redistributed: {before} partitions before, {after} now"
        for before, after in ((3, 2), (2, 5), (5, 1))
    ]
