"""Full-window partitions are those of Spark's tasks: over rounds, and with adaptive execution."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsSingleton

from beam_spark_runner.transforms import FullWindowPartition, ReadFromSpark
from tests.harvest import REUSED_PROCESS, harvest, partition_of_task
from tests.pipelines.test_full_window_partitions import SPREAD, spread
from tests.pipelines.test_residuals_in_rounds import Count, steps_of

pytestmark = pytest.mark.spark

ADAPTIVE = [
    f"--spark_conf=spark.sql.adaptive.{key}"
    for key in (
        "enabled=true",
        "coalescePartitions.parallelismFirst=false",
        "coalescePartitions.minPartitionSize=1g",
        "advisoryPartitionSizeInBytes=1g",
    )
]
"""Spark would make one partition of all that is small, and run nothing for what is empty."""


def attempt_of_task() -> int:
    """Of all tasks of all Spark jobs, no two have the same."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return int(context.taskAttemptId())


def whole(records: Iterator[Any]) -> Iterator[Any]:
    """Make one result of a partition: the task that has it, and its records."""
    kept = [*records]
    yield attempt_of_task(), kept


def test_each_task_of_each_round_has_a_partition(spark_session: Any) -> None:
    elements = [("long", 120), ("short", 3)]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        steps = p | beam.Create(elements) | "count" >> beam.ParDo(Count())
        here = steps | "here" >> beam.Map(lambda step: (attempt_of_task(), step))
        window = FullWindowPartition()
        counts = here | "tally" >> window.aggregate(beam.combiners.CountCombineFn())
        moved = here | beam.Reshuffle() | "arrived" >> beam.Map(lambda pair: pair[1])
        return {
            "here": here,
            "whole": here | window.map_partition(whole),
            "counts": counts,
            "first": here | window.reduce(min),
            "sorted": here | window.sort_partition(1) | beam.Map(lambda pair: pair),
            "moved": moved | "moved whole" >> window.aggregate(beam.combiners.ToListCombineFn()),
        }

    found = harvest(spark_session, build, "--sdf_round_budget=0.3", "--parallelism=2")
    made: dict[int, list[Any]] = defaultdict(list)
    for task, step in found["here"]:
        made[task].append((task, step))
    assert len(made) > 2  # there was more than one round
    assert sorted(step for records in made.values() for _, step in records) == steps_of(*elements)
    parts = {task: sorted(records) for task, records in found["whole"]}
    assert len(parts) == len(found["whole"])
    assert {task: records for task, records in parts.items() if records} == dict(made)
    assert found["counts"] == sorted(map(len, parts.values()))
    assert found["first"] == sorted(map(min, made.values()))
    assert found["sorted"] == found["here"]
    in_order = defaultdict(list)
    for each in found.kept["sorted"]:
        in_order[each.value[0]].append(each.value[1])
    assert all(steps == sorted(steps) for steps in in_order.values())
    assert len(found["moved"]) == 2  # after the exchange, the rounds are one again
    assert sorted(step for steps in found["moved"] for step in steps) == steps_of(*elements)


@pytest.mark.rare
@pytest.mark.grpc
def test_rounds_in_an_sdk_harness(spark_session: Any) -> None:
    elements = [("long", 120), ("short", 3)]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        steps = p | beam.Create(elements) | "count" >> beam.ParDo(Count())
        listed = steps | FullWindowPartition().map_partition(lambda records: [[*records]])
        return {"steps": steps, "listed": listed}

    found = harvest(
        spark_session, build, "--sdf_round_budget=0.3", "--parallelism=2", *REUSED_PROCESS
    )
    assert found["steps"] == steps_of(*elements)
    assert sorted(step for steps in found["listed"] for step in steps) == steps_of(*elements)
    assert len(found["listed"]) > 2


@pytest.mark.parametrize("storage", ["executors", pytest.param("files", marks=pytest.mark.rare)])
def test_adaptive_execution_changes_no_partition(
    spark_session: Any, storage: str, tmp_path: Path
) -> None:
    """Few and small elements, none at all, and what an earlier Spark job has stored."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        here = spread(p, range(6)) | beam.Map(lambda value: (partition_of_task(), value))
        none = here | beam.Filter(lambda pair: pair[1] > 9)
        total = AsSingleton(here | beam.Values() | beam.CombineGlobally(sum))
        window = FullWindowPartition()
        to_list = beam.combiners.ToListCombineFn()
        return {
            "few": here | "few" >> window.aggregate(to_list),
            "none": none | "none" >> window.aggregate(to_list),
            "moved": none | beam.Reshuffle() | "moved" >> window.aggregate(to_list),
            "stored": here
            | "stored" >> window.map_partition(lambda records, sum_: [(sum_, [*records])], total),
        }

    flags = [] if storage == "executors" else [f"--temp_location={tmp_path}"]
    found = harvest(spark_session, build, SPREAD, *flags, *ADAPTIVE)
    for parts in (found["few"], [records for _, records in found["stored"]]):
        assert sorted(value for records in parts for _, value in records) == [*range(6)]
        assert all(len({task for task, _ in records}) <= 1 for records in parts)
        assert len(parts) == 3
    assert {sum_ for sum_, _ in found["stored"]} == {15}
    assert found["none"] == found["moved"] == [[]] * 3


def test_partitions_of_a_table_are_its_own(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        ids = p | ReadFromSpark(dataframe=spark_session.range(0, 30, 1, 5))
        window = FullWindowPartition()
        return {"ids": ids | window.map_partition(lambda rows: [[row.id for row in rows]])}

    found = harvest(spark_session, build, *ADAPTIVE)
    assert sorted(map(sorted, found["ids"])) == [[*range(n, n + 6)] for n in range(0, 30, 6)]
