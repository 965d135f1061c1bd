"""Functions of full-window partitions: their life, their errors, and a sort on disk."""

import operator
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsSingleton

from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.transforms import FullWindowPartition
from tests.spark.harvest import BEAMS_OWN, RARE_HARNESSES, harvest, run
from tests.spark.test_full_window_partitions import SPREAD, spread

pytestmark = pytest.mark.spark


class LifeCycle(beam.DoFn):  # type: ignore[misc]
    """Writes its life into a folder, one file for each call."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def _note(self, call: str) -> None:
        path = Path(self._folder, f"{call}-{id(self)}")
        path.write_text(str(int(path.read_text()) + 1 if path.exists() else 1))
        Metrics.counter("test", call).inc()

    def setup(self) -> None:
        self._note("setup")

    def start_bundle(self) -> None:
        self._note("start")

    def process(self, records: Any, side: int) -> Iterator[Any]:
        for record in records:
            Metrics.counter("test", "records").inc()
            yield record + side

    def finish_bundle(self) -> None:
        self._note("finish")

    def teardown(self) -> None:
        self._note("teardown")


@pytest.mark.parametrize("harness", RARE_HARNESSES)
def test_the_life_of_a_dofn_its_side_inputs_and_metrics(
    spark_session: Any, harness: tuple[str, ...], tmp_path: Path
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        side = AsSingleton(p | "side" >> beam.Create([100]))
        mapped = spread(p, range(9)) | "ours" >> FullWindowPartition().map_partition(
            LifeCycle(str(tmp_path)), side
        )
        return {"mapped": mapped}

    found = harvest(spark_session, build, SPREAD, *harness)
    assert found["mapped"] == [*range(100, 109)]
    assert (found.counter("start"), found.counter("finish")) == (3, 3)
    assert found.counter("records") == 9
    counters = found.result.metrics().query()["counters"]
    (step,) = {each.key.step for each in counters if each.key.metric.name == "records"}
    assert step == "ours/Partitions"
    if harness != BEAMS_OWN:  # which lives on
        for call in ("setup", "teardown"):
            assert {file.read_text() for file in tmp_path.glob(f"{call}-*")} <= {"1", "2"}


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
    assert raised.value.step == "careful/Partitions"
    assert "in fail" in str(raised.value)


def test_keys_without_an_order_name_the_step(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        mixed = spread(p, [1, "a"])
        _ = mixed | "in order" >> FullWindowPartition().sort_partition(lambda value: value)

    with pytest.raises(BundleFailedError, match="cannot be sorted: '<' not supported") as raised:
        run(spark_session, build, "--parallelism=1")
    assert raised.value.step == "in order/Partitions"


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
