"""Segments that begin in one task: what it does not run is run by others, once."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from tests.harvest import SPREAD, harvest, run
from tests.spark.restrictions import RESTRICTION

SOON = "--single_task_budget=0.05"
AT_ONCE = "--single_task_budget=0.000001"


class Meet(beam.DoFn):  # type: ignore[misc]
    """Waits until two processes have got an element."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def process(self, element: int) -> Iterator[int]:
        (self._folder / str(os.getpid())).touch()
        ends_s = time.monotonic() + 60
        while len(list(self._folder.iterdir())) < 2:
            assert time.monotonic() < ends_s, "no other process has got an element"
            time.sleep(0.01)
        yield element


@pytest.mark.spark
def test_an_element_that_takes_long_does_not_keep_others_waiting(
    on_spark: Any, tmp_path: Path
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        met = p | beam.Create(range(20)) | beam.ParDo(Meet(str(tmp_path)))
        sums = met | beam.Map(lambda n: (n % 2, n)) | beam.CombinePerKey(sum)
        side = met | "side" >> beam.Map(lambda n, total: (n, total), beam.pvalue.AsDict(sums))
        return {"met": met, "sums": sums, "side": side}

    found = harvest(on_spark, build, SOON)
    assert found["met"] == list(range(20))
    assert found["sums"] == [(0, 90), (1, 100)]
    assert [n for n, _ in found["side"]] == list(range(20))


@pytest.mark.spark
def test_an_error_of_another_element_ends_the_one_that_takes_long(
    on_spark: Any, tmp_path: Path
) -> None:
    def wait_or_fail(n: int) -> None:
        is_first = not list(tmp_path.iterdir())
        (tmp_path / str(n)).touch()
        if not is_first:
            raise ValueError("not the first one")
        time.sleep(300)

    with pytest.raises(ValueError, match="not the first one"):
        run(
            on_spark,
            lambda p: p | beam.Create(range(20)) | "fail" >> beam.Map(wait_or_fail),
            SOON,
        )


def slowly(n: int) -> int:
    time.sleep(0.002)
    return n


@pytest.mark.parametrize("budget", [SOON, AT_ONCE])
def test_elements_that_take_little_time_but_are_many(spark_session: Any, budget: str) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        slow = p | beam.Create(range(300)) | beam.Map(slowly)
        grouped = slow | beam.Map(lambda n: (n % 7, n)) | beam.GroupByKey()
        return {
            "slow": slow,
            "grouped": grouped | beam.MapTuple(lambda key, ns: (key, sorted(ns))),
        }

    found = harvest(spark_session, build, budget)
    assert found["slow"] == list(range(300))
    assert found.partitions("slow") == {0, 1}
    assert found["grouped"] == [(key, list(range(key, 300, 7))) for key in range(7)]


def test_levels_that_emit_much(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        many = p | beam.Create(range(4)) | beam.FlatMap(lambda n: (bytes(100),) * 40_000)
        keyed = many | beam.Map(lambda value: (len(value), value)) | beam.GroupByKey()
        return {"counts": keyed | beam.MapTuple(lambda key, values: (key, len(list(values))))}

    found = harvest(spark_session, build, "--single_task_budget=60")
    assert found["counts"] == [(100, 160_000)]


@pytest.mark.spark
def test_an_element_that_makes_too_much_for_the_driver(on_spark: Any, tmp_path: Path) -> None:
    """The first task gives up; the level is run again, by other tasks."""

    def grow(n: int) -> Iterator[tuple[int, bytes]]:
        (tmp_path / str(n)).open("a").write("once ")
        return ((key, bytes(100_000)) for key in range(400))

    def build(p: beam.Pipeline) -> dict[str, Any]:
        much = p | beam.Create([7]) | beam.FlatMap(grow).with_output_types(tuple[int, bytes])
        counts = much | beam.GroupByKey() | beam.MapTuple(lambda key, all_: len(list(all_)))
        return {"total": counts | beam.CombineGlobally(sum)}

    assert harvest(on_spark, build)["total"] == [400]
    assert (tmp_path / "7").read_text() == "once once "


@pytest.mark.spark
def test_a_side_input_that_is_sent_as_a_file(on_spark: Any) -> None:
    """Whether one Spark task makes it and reads it, or two."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        texts = p | "keys" >> beam.Create(range(30)) | beam.Map(lambda n: (n, os.urandom(100_000)))
        main = p | beam.Create(range(3))
        sizes = main | beam.Map(lambda n, table: len(table[n]), beam.pvalue.AsDict(texts))
        return {"sizes": sizes}

    assert harvest(on_spark, build, "--single_task_budget=60")["sizes"] == [100_000] * 3


def test_rows_of_one_task_are_spread_for_the_steps_that_read_them_with_a_side_input(
    spark_session: Any,
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create(range(200)) | beam.Map(lambda n: bytes([n]) * 10_000)
        count = numbers | beam.combiners.Count.Globally()
        kept = numbers | "kept" >> beam.Map(
            lambda value, total: (value[0], total), beam.pvalue.AsSingleton(count)
        )
        return {"kept": kept}

    found = harvest(spark_session, build, "--single_task_budget=60")
    assert found["kept"] == [(n, 200) for n in range(200)]
    assert found.partitions("kept") == {0, 1}


class Slowly(beam.DoFn):  # type: ignore[misc]
    def process(self, element: tuple[str, int], tracker: Any = RESTRICTION) -> Iterator[Any]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            time.sleep(0.02)
            yield element[0], position
            position += 1


@pytest.mark.parametrize("budget", [SPREAD, AT_ONCE, SOON])
def test_rows_that_skip_levels_are_read_once_after_rounds(spark_session: Any, budget: str) -> None:
    """Two splittable DoFns leave work, one after the other; other rows wait for both."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        early = p | beam.Create([("early", n) for n in range(5)])
        one = p | "one" >> beam.Create([("a", 30)]) | "1" >> beam.ParDo(Slowly())
        counted = one | beam.combiners.Count.PerKey()
        two = counted | "2" >> beam.ParDo(Slowly())
        all_ = (early, two) | beam.Flatten() | beam.GroupByKey()
        return {"all": all_ | beam.MapTuple(lambda key, values: (key, sorted(values)))}

    found = harvest(spark_session, build, "--sdf_round_budget=0.1", budget)
    assert found["all"] == [("a", list(range(30))), ("early", list(range(5)))]
