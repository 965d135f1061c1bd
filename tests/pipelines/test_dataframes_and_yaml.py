"""Pipelines that are written as data frames or in YAML."""

import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

from tests.harvest import harvest


class Described(beam.DoFn):  # type: ignore[misc]
    def display_data(self) -> dict[str, Any]:
        return {"answer": 42, "naïve": "größe"}

    def process(self, element: Any) -> Iterator[Any]:
        yield element


def test_nothing_that_only_describes_is_an_error(
    spark_session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        hinted = beam.ParDo(Described()).with_resource_hints(
            min_ram="1GB", accelerator="type:t4;count:1"
        )
        made = p | "数える" >> beam.Create([None, "", 0, ()]) | "Größe/ñ 🎉" >> hinted
        annotated = made | "x" * 300 >> Annotated()
        return {
            "kept": annotated | beam.Map(repr),
            "keys": annotated
            | "a\tb\n\"'\\" >> beam.Map(lambda x: (x, None))
            | "групп" >> beam.GroupByKey()
            | "show" >> beam.MapTuple(lambda key, values: repr((key, list(values)))),
        }

    found = harvest(spark_session, build, "--resource_hint=min_ram=1GB")
    assert found["kept"] == sorted(map(repr, [None, "", 0, ()]))
    assert found["keys"] == sorted(repr((key, [None])) for key in [None, "", 0, ()])
    assert caplog.messages == []


def test_hints_without_effect_are_named(
    spark_session: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Tasks run in the program, or in one Spark process of this machine."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        hinted = beam.Map(str).with_resource_hints(cpu_count="2")
        return {"texts": p | beam.Create([1]) | "hinted" >> hinted}

    assert harvest(spark_session, build)["texts"] == ["1"]
    (warning,) = [message for message in caplog.messages if "resource hint" in message]
    assert warning.startswith("a resource hint of hinted has no effect: tasks run in ")


class Annotated(beam.PTransform):  # type: ignore[misc]
    def annotations(self) -> dict[str, Any]:
        return {"note": b"\xff\x00", "words": "large"}

    def expand(self, values: Any) -> Any:
        return values | beam.Reshuffle()


class Sale(NamedTuple):
    """A row of the frames."""

    shop: str
    amount: int


beam.coders.registry.register_coder(Sale, beam.coders.RowCoder)


def test_data_frames(spark_session: Any) -> None:
    from apache_beam.dataframe.convert import to_dataframe, to_pcollection

    def build(p: beam.Pipeline) -> dict[str, Any]:
        sales = p | beam.Create(
            [Sale("north", 3), Sale("south", 5), Sale("north", 4)]
        ).with_output_types(Sale)
        frame = to_dataframe(sales)
        frame["double"] = frame.amount * 2
        total = frame.groupby("shop").double.sum()
        large = frame[frame.amount > 3]
        return {
            "total": to_pcollection(total) | beam.Map(int),
            "large": to_pcollection(large)
            | "as pairs" >> beam.Map(lambda row: (row.shop, int(row.double))),
        }

    found = harvest(spark_session, build)
    assert found["total"] == [10, 14]
    assert found["large"] == [("north", 8), ("south", 10)]
