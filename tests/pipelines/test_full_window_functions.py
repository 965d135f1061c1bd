"""Functions of full-window partitions: their life, their errors, and a sort on disk."""

import operator
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.transforms import FullWindowPartition
from tests.harvest import RARE_HARNESSES, harvest, run
from tests.pipelines.test_full_window_partitions import SPREAD, spread


class Life:
    """Writes the calls that one instance of user code gets into a separate file."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def begin(self) -> None:
        self._path = Path(self._folder, uuid.uuid4().hex)
        self.note("setup")

    def note(self, call: str) -> None:
        with self._path.open("a") as file:
            file.write(f"{call}\n")

    @staticmethod
    def read(folder: Path) -> list[list[str]]:
        """Return the calls of each instance."""
        return [path.read_text().split() for path in folder.iterdir()]


class LifeCycle(beam.DoFn):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self._life = Life(folder)

    def setup(self) -> None:
        self._life.begin()

    def start_bundle(self) -> None:
        self._life.note("start")

    def process(self, records: Any, side: int) -> Iterator[Any]:
        self._life.note("process")
        for record in records:
            Metrics.counter("test", "records").inc()
            yield record + side

    def finish_bundle(self) -> None:
        self._life.note("finish")

    def teardown(self) -> None:
        self._life.note("teardown")


class LifeOfCombineFn(beam.CombineFn):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self._life = Life(folder)

    def setup(self, side: int = 0) -> None:
        self._life.begin()

    def create_accumulator(self, side: int) -> list[int]:
        self._life.note("create")
        return []

    def add_input(self, accumulator: list[int], element: int, side: int) -> list[int]:
        return [*accumulator, element + side]

    def merge_accumulators(self, accumulators: Any, side: int) -> list[int]:
        raise AssertionError("accumulators are never merged")

    def extract_output(self, accumulator: list[int], side: int) -> list[int]:
        self._life.note("extract")
        return accumulator

    def teardown(self, side: int = 0) -> None:
        self._life.note("teardown")


@pytest.mark.parametrize("harness", RARE_HARNESSES)
def test_the_life_of_user_code_its_side_inputs_and_metrics(
    spark_session: Any, harness: tuple[str, ...], tmp_path: Path
) -> None:
    mapping, combining = tmp_path / "map", tmp_path / "combine"
    mapping.mkdir()
    combining.mkdir()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        side = AsSingleton(p | "side" >> beam.Create([100]))
        values = spread(p, range(9))
        window = FullWindowPartition()
        return {
            "mapped": values | "ours" >> window.map_partition(LifeCycle(mapping), side),
            "folded": values | window.aggregate(LifeOfCombineFn(combining), side),
        }

    found = harvest(spark_session, build, SPREAD, *harness)
    assert found["mapped"] == [*range(100, 109)]
    assert sorted(value for part in found["folded"] for value in part) == found["mapped"]
    assert found.counter("records") == 9
    counters = found.result.metrics().query()["counters"]
    (step,) = {each.key.step for each in counters if each.key.metric.name == "records"}
    assert step == "ours/Partitions"
    for folder, of_partition in (
        (mapping, ["start", "process", "finish"]),
        (combining, ["create", "extract"]),
    ):
        partitions = 0
        for first, *calls in Life.read(folder):
            assert first == "setup"
            if not harness:  # others live on
                assert calls.pop() == "teardown"
            elif calls[-1] == "teardown":
                calls.pop()
            here = len(calls) // len(of_partition)
            assert calls == of_partition * here
            partitions += here
        assert partitions == 3


def test_what_a_function_raises_names_the_step(spark_session: Any) -> None:
    def fail(records: Iterable[int]) -> Iterator[int]:
        for record in records:
            if record == 7:
                raise ValueError("no sevens")
            yield record

    def build(p: beam.Pipeline) -> None:
        _ = spread(p, range(20)) | "careful" >> FullWindowPartition().map_partition(fail)

    with pytest.raises(BundleFailedError, match="no sevens") as raised:
        run(spark_session, build, SPREAD)
    assert raised.value.step == "careful"
    assert "in fail" in str(raised.value)


def test_keys_without_an_order_name_the_step(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        mixed = spread(p, [1, "a"])
        _ = mixed | "in order" >> FullWindowPartition().sort_partition(lambda value: value)

    with pytest.raises(BundleFailedError, match="cannot be sorted: '<' not supported") as raised:
        run(spark_session, build, "--parallelism=1")
    assert raised.value.step == "in order"


@pytest.mark.parametrize("harness", RARE_HARNESSES)
def test_a_sort_that_does_not_fit_into_its_memory(
    spark_session: Any, harness: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        values = spread(p, range(40)) | beam.FlatMap(
            lambda block: ((each * 7919) % 10_007 for each in range(block, 10_000, 40))
        )
        in_order = values | FullWindowPartition().sort_partition(lambda value: value)
        return {
            "checked": in_order
            | FullWindowPartition().map_partition(
                lambda records: [
                    (len(listed), all(map(operator.le, listed, listed[1:])))
                    for listed in [[*records]]
                ]
            )
        }

    found = harvest(
        spark_session, build, "--parallelism=2", "--sort_partition_memory=16k", *harness
    )
    assert sum(count for count, _ in found["checked"]) == 10_000
    assert [is_sorted for _, is_sorted in found["checked"]] == [True, True]
