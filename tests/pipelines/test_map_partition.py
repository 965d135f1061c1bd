"""The function of ``map_partition`` in a Spark task: it runs next to what makes its records."""

import itertools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.transforms import FullWindowPartition
from tests.harvest import RARE_HARNESSES, harvest, run
from tests.pipelines.test_full_window_partitions import SPREAD, spread

BLOCK, BLOCKS = 1_000, 60


def block_of(number: int) -> Iterable[int]:
    return range(number * BLOCK, (number + 1) * BLOCK)


@pytest.mark.parametrize("harness", RARE_HARNESSES)
def test_it_sees_the_first_record_before_the_input_ends(
    spark_session: Any, tmp_path: Path, harness: tuple[str, ...]
) -> None:
    marker = tmp_path / "seen"

    def wait_for_the_function(number: int) -> Iterable[int]:
        deadline = time.monotonic() + 60
        while number == BLOCKS - 1 and not marker.exists():
            assert time.monotonic() < deadline, "the function has seen no record"
            time.sleep(0.01)
        return block_of(number)

    def see(records: Iterator[int]) -> Iterator[int]:
        for record in records:
            marker.touch()
            yield record

    def build(p: beam.Pipeline) -> dict[str, Any]:
        blocks = p | beam.Create(range(BLOCKS), reshuffle=False)
        values = blocks | beam.FlatMap(wait_for_the_function)
        return {"seen": values | FullWindowPartition().map_partition(see)}

    assert harvest(spark_session, build, *harness)["seen"] == [*range(BLOCK * BLOCKS)]


@pytest.mark.parametrize("harness", RARE_HARNESSES)
def test_it_may_return_early(spark_session: Any, harness: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = spread(p, range(BLOCKS)) | beam.FlatMap(block_of)
        seen = values | beam.ParDo(Counting())
        window = FullWindowPartition()
        return {
            "first": seen | "first" >> window.map_partition(lambda records: [next(records)]),
            "none": seen | "none" >> window.map_partition(lambda records: ["none"]),
        }

    found = harvest(spark_session, build, SPREAD, *harness)
    assert len(found["first"]) == 3
    assert found["none"] == ["none"] * 3
    assert found.counter("seen") == BLOCK * BLOCKS


class Counting(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any) -> Iterator[Any]:
        beam.metrics.Metrics.counter("test", "seen").inc()
        yield element


def test_its_error_ends_an_input_that_never_would(spark_session: Any) -> None:
    def fail(records: Iterator[int]) -> Iterator[int]:
        for record in records:
            if record == 5_000:
                raise ValueError("no 5000")
            yield record

    def build(p: beam.Pipeline) -> None:
        endless = p | beam.Create([0]) | beam.FlatMap(lambda start: itertools.count(start))
        _ = endless | "fail" >> FullWindowPartition().map_partition(fail)

    with pytest.raises(BundleFailedError, match="no 5000") as raised:
        run(spark_session, build)
    assert raised.value.step == "fail"


@pytest.mark.parametrize("window", [FullWindowPartition(), FullWindowPartition.by_key()])
def test_a_second_pass_names_the_step(spark_session: Any, window: FullWindowPartition) -> None:
    def build(p: beam.Pipeline) -> None:
        pairs = spread(p, [("k", 1), ("k", 2)])
        _ = pairs | "twice" >> window.map_partition(lambda records: [[*records], [*records]])

    with pytest.raises(BundleFailedError, match="can be read only once") as raised:
        run(spark_session, build)
    assert raised.value.step == "twice"


@pytest.mark.parametrize("harness", RARE_HARNESSES)
@pytest.mark.parametrize("keyed", [False, True])
def test_records_that_are_none(spark_session: Any, harness: tuple[str, ...], keyed: bool) -> None:
    """They are neither the end nor an empty partition, in any of the forms."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = p | beam.Create([None, 1, None], reshuffle=False)
        window = FullWindowPartition()
        if keyed:
            values |= beam.WithKeys("k")
            window = FullWindowPartition.by_key()
        made = {
            "mapped": values | window.map_partition(lambda records: [[*records]]),
            "aggregated": values | window.aggregate(beam.combiners.ToListCombineFn()),
            "reduced": values | window.reduce(lambda kept, value: f"{kept} {value}"),
            "sorted": values | window.sort_partition(lambda value: str(value)),
        }
        if keyed:
            return {label: each | f"{label} alone" >> beam.Values() for label, each in made.items()}
        return made

    found = harvest(spark_session, build, "--parallelism=1", *harness)
    for label in ("mapped", "aggregated"):
        (records,) = found[label]
        assert sorted(records, key=str) == [1, None, None]
    assert [sorted(text.split()) for text in found["reduced"]] == [["1", "None", "None"]]
    assert [each.value for each in found.kept["sorted"]] == [1, None, None]
