"""How many tasks stand after an exchange."""

from collections import Counter
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.job.run import run_settings
from beam_spark_runner.scheduling import partition_counts
from tests.harvest import SPREAD, harvest


def _spread(p: beam.Pipeline) -> dict[str, Any]:
    return {"all": p | beam.Create(range(200), reshuffle=False) | beam.Reshuffle()}


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        pytest.param([], 2, id="what the session says"),
        pytest.param(["--parallelism=3"], 3, id="parallelism"),
        pytest.param(["--max_parallelism=1"], 1, id="max_parallelism"),
    ],
)
def test_without_knowledge_of_the_data(spark_session: Any, flags: list[str], count: int) -> None:
    assert harvest(spark_session, _spread, SPREAD, *flags).partitions("all") == set(range(count))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("flags", "count"),
    [
        pytest.param([5], 5, id="shuffle partitions"),
        pytest.param([5, "--parallelism=3"], 3, id="parallelism", marks=pytest.mark.rare),
        pytest.param([200], 2, id="slots", marks=pytest.mark.rare),
    ],
)
def test_the_settings_of_spark(on_spark: Any, flags: list[Any], count: int) -> None:
    shuffles, *others = flags
    conf = f"--spark_conf=spark.sql.shuffle.partitions={shuffles}"
    assert harvest(on_spark, _spread, SPREAD, conf, *others).partitions("all") == set(range(count))


@pytest.mark.parametrize(
    ("flags", "default_most", "count"),
    [
        pytest.param([], 2_000, 4, id="by bytes"),
        pytest.param(["--parallelism=2"], 2_000, 2, id="parallelism"),
        pytest.param(["--max_parallelism=3"], 2_000, 3, id="max_parallelism"),
        pytest.param([], 3, 3, id="at most the default"),
        pytest.param(["--max_parallelism=50"], 3, 4, id="max_parallelism above the default"),
    ],
)
def test_a_segment_that_reads_more_gets_more(
    spark_session: Any,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    default_most: int,
    count: int,
) -> None:
    monkeypatch.setattr(partition_counts, "BYTES_PER_PARTITION", 1 << 20)
    monkeypatch.setattr(run_settings, "MAX_FROM_BYTES", default_most)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = _spread(p)["all"] | beam.Map(lambda number: (number, b"x" * 16_000))
        side = beam.pvalue.AsSingleton(values | beam.combiners.Count.Globally())
        after = (
            values
            | beam.Filter(lambda _, total: total == 200, side)
            | beam.GroupByKey()
            | beam.Keys()
        )
        return {"all": after}

    found = harvest(spark_session, build, SPREAD, *flags)
    assert found["all"] == list(range(200))
    assert found.partitions("all") == set(range(count))


def test_elements_that_cross_segments_use_all_of_them(
    spark_session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The segment that wrote them had two partitions, and could not know of more."""
    monkeypatch.setattr(partition_counts, "BYTES_PER_PARTITION", 1 << 19)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(200), reshuffle=False)
        values = numbers | "Reshuffle" >> beam.Reshuffle() | beam.Map(lambda n: (n, b"x" * 16_000))
        side = beam.pvalue.AsSingleton(values | beam.combiners.Count.Globally())
        moved = values | "Move" >> beam.Reshuffle()
        return {"all": moved | beam.Map(lambda each, total: each[0] + 0 * total, side)}

    found = harvest(spark_session, build, SPREAD)
    assert found["all"] == list(range(200))
    loads = Counter(each.partition for each in found.kept["all"])
    assert set(loads) == set(range(8))
    assert max(loads.values()) - min(loads.values()) <= 2
