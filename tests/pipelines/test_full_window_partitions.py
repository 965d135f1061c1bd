"""Full-window partitions: which they are, and what functions see of them."""

import itertools
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    SlidingWindows,
    TimestampedValue,
)
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from beam_spark_runner.transforms import FullWindowPartition, Order
from tests.harvest import HARNESSES, RARE_HARNESSES, harvest, partition_of_task

SPREAD = "--parallelism=3"


def spread(p: beam.Pipeline, values: Iterable[Any], label: str = "values") -> Any:
    return (
        p
        | label >> beam.Create(list(values), reshuffle=False)
        | f"{label} spread" >> (beam.Reshuffle())
    )


class Events(beam.CombineFn):  # type: ignore[misc]
    """Writes down what is called."""

    def setup(self) -> None:
        Metrics.counter("test", "set up").inc()

    def create_accumulator(self, *sides: Any) -> list[Any]:
        return ["create", *sides]

    def add_input(self, accumulator: list[Any], element: Any, *sides: Any) -> list[Any]:
        return [*accumulator, element]

    def merge_accumulators(self, accumulators: Any, *sides: Any) -> list[Any]:
        raise AssertionError("accumulators are never merged")

    def extract_output(self, accumulator: list[Any], *sides: Any) -> tuple[Any, ...]:
        return tuple(accumulator)


@pytest.mark.parametrize("harness", HARNESSES)
def test_functions_get_the_partitions_of_the_step_before(
    spark_session: Any, harness: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = spread(p, range(30)) | beam.Map(lambda value: (value % 4, value))
        window = FullWindowPartition()
        return {
            "values": values,
            "mapped": values | window.map_partition(lambda records: [sorted(records)]),
            "aggregated": values | window.aggregate(Events()),
            "reduced": values | window.reduce(max),
            "sorted": values
            | window.sort_partition(0, Order.DESCENDING)
            | beam.Map(lambda value: value),
        }

    found = harvest(spark_session, build, SPREAD, *harness)
    parts = [*found["mapped"]]
    assert sorted(map(len, parts)) == [10, 10, 10]
    assert sorted(itertools.chain(*parts)) == found["values"]
    assert sorted(sorted(each[1:]) for each in found["aggregated"]) == sorted(parts)
    assert all(each[0] == "create" for each in found["aggregated"])
    assert found["reduced"] == sorted(map(max, parts))
    assert found["sorted"] == found["values"]
    if not harness:
        by_task = defaultdict(list)
        for each in found.kept["values"]:
            by_task[each.partition].append(each.value)
        assert sorted(map(sorted, by_task.values())) == sorted(parts)
        for task in by_task:
            keys = [each.value[0] for each in found.kept["sorted"] if each.partition == task]
            assert keys == sorted(keys, reverse=True)


@pytest.mark.parametrize("harness", RARE_HARNESSES)
def test_empty_partitions(spark_session: Any, harness: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = spread(p, [5])
        none = values | beam.Filter(lambda value: value > 5)
        window = FullWindowPartition()
        return {
            "mapped": values | window.map_partition(lambda records: [len([*records])]),
            "aggregated": values | window.aggregate(Events()),
            "reduced": values | window.reduce(operator.add),
            "sorted": values | window.sort_partition(lambda value: value),
            "none": none | "none" >> window.aggregate(Events()),
            "count of none": none
            | "of none" >> window.aggregate(Events())
            | beam.combiners.Count.Globally(),
        }

    found = harvest(spark_session, build, SPREAD, *harness)
    assert found["mapped"] == [0, 0, 1]
    assert found["aggregated"] == [("create",), ("create",), ("create", 5)]
    assert found["reduced"] == found["sorted"] == [5]
    assert found["none"] == [("create",)] * 3
    assert found["count of none"] == [3]


def test_sources_have_the_partitions_of_their_tasks(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        one = p | beam.Create([3, 1, 2], reshuffle=False)
        other = p | "other" >> beam.Create(["x"], reshuffle=False)
        window = FullWindowPartition()
        both = (one, other) | beam.Flatten()
        return {
            "one": one | "one" >> window.aggregate(Events()),
            "of other": other | "of other" >> window.aggregate(Events()),
            "both": both | "both" >> window.map_partition(lambda records: [[*records]]),
        }

    found = harvest(spark_session, build, SPREAD)
    assert found["one"] == [("create", 3, 1, 2)]
    assert found["of other"] == [("create", "x")]
    assert found["both"] == [[3, 1, 2, "x"]]  # one task has both impulses


@pytest.mark.spark
@pytest.mark.parametrize("storage", [pytest.param("executors", marks=pytest.mark.rare), "files"])
def test_materialised_partitions_are_those_that_were_made(
    on_spark: Any, storage: str, tmp_path: Path
) -> None:
    """Two Spark jobs, since the side input has to be complete; with exchanges in between."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = spread(p, range(20))
        here = values | beam.Map(lambda value: (partition_of_task(), value))
        some = here | beam.Filter(lambda pair: pair[0] != 1)
        total = AsSingleton(
            values
            | beam.Map(lambda value: (value % 2, value))
            | beam.CombinePerKey(sum)
            | beam.Values()
            | beam.CombineGlobally(sum)
        )
        # Made before the first exchange of that job, and read by a later one.
        read = p | "read" >> beam.Create(range(7), reshuffle=False)
        window = FullWindowPartition()
        return {
            "made": here | window.map_partition(lambda records, sum_: [(sum_, [*records])], total),
            "some": some | "some" >> window.aggregate(Events(), total),
            "read": read | "of read" >> window.aggregate(Events(), total),
        }

    flags = [SPREAD] if storage == "executors" else [SPREAD, f"--temp_location={tmp_path}"]
    found = harvest(on_spark, build, *flags)
    assert [sum_ for sum_, _ in found["made"]] == [190] * 3
    parts = [records for _, records in found["made"]]
    assert all(len({task for task, _ in records}) == 1 for records in parts)
    assert sorted(value for records in parts for _, value in records) == [*range(20)]
    by_task = {records[0][0]: records for records in parts}
    assert sorted(found["some"]) == sorted(
        [("create", 190, *by_task[0]), ("create", 190), ("create", 190, *by_task[2])]
    )
    assert found["read"] == [("create", 190, *range(7))]


def test_a_stored_partition_is_read_once_in_each_later_job(spark_session: Any) -> None:
    """The third job also reads what the second one has stored, which is none of them."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        here = spread(p, range(20))
        window = FullWindowPartition()
        first = AsSingleton(here | "sum" >> beam.CombineGlobally(sum))
        stored = here | "stored" >> beam.Map(lambda value, _: value, first)
        sizes = stored | "second" >> window.aggregate(beam.combiners.CountCombineFn())
        second = AsSingleton(sizes | "sum of sizes" >> beam.CombineGlobally(sum))
        stored_still = here | "stored still" >> beam.Map(lambda value, _: value, second)
        later = stored_still | "third" >> window.aggregate(beam.combiners.CountCombineFn())
        listed = {
            name: each
            | f"list {name}" >> beam.combiners.ToList()
            | f"key {name}" >> beam.WithKeys(0)
            for name, each in (("second", sizes), ("third", later))
        }
        return {"sizes": sizes, "both": listed | beam.CoGroupByKey()}

    found = harvest(spark_session, build, SPREAD)
    assert len(found["sizes"]) == 3
    assert sum(found["sizes"]) == 20
    ((_, both),) = found["both"]
    assert [sorted(*both[name]) for name in ("second", "third")] == [found["sizes"]] * 2


def test_nothing_is_exchanged(spark_session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = spread(p, range(9))
        top = values | "sort" >> FullWindowPartition().sort_partition(lambda value: -value)
        return {"top": top | FullWindowPartition().map_partition(lambda records: [next(records)])}

    found = harvest(
        spark_session,
        build,
        SPREAD,
        "--show_plan",
        "--spark_conf=spark.sql.adaptive.enabled=true",
        "--spark_conf=spark.sql.adaptive.coalescePartitions.parallelismFirst=false",
    )
    assert len(found["top"]) == 3
    plan = capsys.readouterr().out
    assert "with 1 exchange\n" in plan
    assert "takes    all elements of a task as one partition, for sort" in plan


class Reader(NamedTuple):
    name: str
    age: int


@pytest.mark.parametrize("harness", RARE_HARNESSES)
@pytest.mark.parametrize("order", [*Order])
def test_every_form_of_sort_keeps_timestamps_and_windows(
    spark_session: Any, harness: tuple[str, ...], order: Order
) -> None:
    people = [Reader(name, age) for age, name in enumerate("dcab")]

    def build(p: beam.Pipeline) -> dict[str, Any]:
        readers = spread(p, people)
        timed = readers | "time" >> beam.Map(lambda each: TimestampedValue(each, each.age))
        window = FullWindowPartition()
        return {
            "field": readers | "field" >> window.sort_partition(0, order),
            "name": readers | "name" >> window.sort_partition("age", order),
            "key": timed | "key" >> window.sort_partition(lambda each: each.name, order),
            "windowed": timed
            | beam.WindowInto(SlidingWindows(4, 2))
            | "windowed" >> window.sort_partition("name", order),
        }

    found = harvest(spark_session, build, "--parallelism=1", *harness)
    descends = order is Order.DESCENDING
    by_name = sorted(people, reverse=descends)
    by_age = sorted(people, key=lambda each: each.age, reverse=descends)
    assert [each.value for each in found.kept["field"]] == by_name
    assert {each.timestamp for each in found.kept["field"]} == {MIN_TIMESTAMP}
    assert [each.value for each in found.kept["name"]] == by_age
    assert [(each.value, each.timestamp) for each in found.kept["key"]] == [
        (each, each.age) for each in by_name
    ]
    assert [each.value for each in found.kept["windowed"]] == [
        each for each in by_name for _ in range(2)
    ]
    assert Counter(
        (each.value, each.window.end.micros // 1_000_000) for each in found.kept["windowed"]
    ) == Counter(
        (each, end) for each in people for end in (each.age // 2 * 2 + 2, each.age // 2 * 2 + 4)
    )


@pytest.mark.parametrize("harness", RARE_HARNESSES)
def test_results_are_at_the_end_of_the_global_window(
    spark_session: Any, harness: tuple[str, ...]
) -> None:
    """An element of two windows counts twice, as everywhere in Beam."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = (
            spread(p, range(4))
            | beam.Map(lambda value: TimestampedValue(value, value))
            | beam.WindowInto(SlidingWindows(4, 2))
        )
        window = FullWindowPartition()
        pairs = values | beam.Map(lambda value: ("k", value)).with_output_types(tuple[str, int])
        return {
            "mapped": values | window.map_partition(lambda records: [sum(records)]),
            "aggregated": values | window.aggregate(beam.combiners.CountCombineFn()),
            "reduced": values | window.reduce(operator.add),
            "keyed": pairs | "by key" >> FullWindowPartition.by_key().reduce(operator.add),
        }

    found = harvest(spark_session, build, "--parallelism=1", *harness)
    assert (found["mapped"], found["aggregated"], found["reduced"]) == ([12], [8], [12])
    assert found["keyed"] == [("k", 12)]
    end_ms = GlobalWindow().max_timestamp().micros // 1000
    for kept in found.kept.values():
        assert [(each.timestamp.micros // 1000, each.window) for each in kept] == [
            (end_ms, GlobalWindow())
        ]


@pytest.mark.parametrize("harness", RARE_HARNESSES)
def test_keyed_partitions(spark_session: Any, harness: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = (
            spread(p, range(12))
            | beam.Map(lambda value: TimestampedValue((value % 3, value), value)).with_output_types(
                tuple[int, int]
            )
            | beam.WindowInto(FixedWindows(5))
        )
        window = FullWindowPartition.by_key()
        one = AsSingleton(p | "one" >> beam.Create([100]))
        return {
            "mapped": pairs | window.map_partition(lambda records, side: [sum(records), side], one),
            "sorted": pairs | window.sort_partition(lambda value: value, Order.DESCENDING),
            "aggregated": pairs | window.aggregate(beam.combiners.CountCombineFn()),
            "reduced": pairs | window.reduce(max),
        }

    found = harvest(spark_session, build, "--parallelism=2", *harness)
    assert found["mapped"] == [(0, 18), (0, 100), (1, 22), (1, 100), (2, 26), (2, 100)]
    assert found["aggregated"] == [(0, 4), (1, 4), (2, 4)]
    assert found["reduced"] == [(0, 9), (1, 10), (2, 11)]
    for key in range(3):
        kept = [each for each in found.kept["sorted"] if each.value[0] == key]
        assert [each.value[1] for each in kept] == [*range(9 + key, -1, -3)]
        assert [each.timestamp for each in kept] == [each.value[1] for each in kept]
        assert [each.window.start for each in kept] == [each.value[1] // 5 * 5 for each in kept]
