"""Side inputs of streams that several tasks gather."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsDict, AsList, AsMultiMap
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_spark_runner.recovery.manifest import decode
from tests.harvest import harvest
from tests.pipelines.test_streaming_side_inputs import look_up, numbers

MANY = 4_000


def epochs_of(values: list[int]) -> list[int]:
    """Return the epoch of every so manieth value; those of one are in no order."""
    assert len(set(values)) == len(values)
    return [value // MANY for value in values[:: MANY // 2]]


def test_a_window_is_gathered_in_parts(spark_session: Any, tmp_path: Path) -> None:
    """Its values come in the order of epochs, from all parts; what has expired is deleted."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1, 11), tag="main")
        for epoch in range(3):
            events.add_elements([TimestampedValue(epoch, 5)], tag="side")
        events.advance_watermark_to(10, tag="side").add_elements(numbers(2), tag="main")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        many = found["side"] | beam.FlatMap(lambda epoch: range(epoch * MANY, (epoch + 1) * MANY))
        side = many | "S" >> beam.WindowInto(FixedWindows(10))
        table = side | beam.Map(lambda value: (value % 100, value // MANY))
        main = found["main"] | "M" >> beam.WindowInto(FixedWindows(10))
        return {
            "list": main | beam.Map(lambda number, some: (number, epochs_of(some)), AsList(side)),
            "multimap": main
            | beam.Map(lambda number, some: (number, list(some[7])), AsMultiMap(table)),
        }

    found = harvest(spark_session, build, f"--checkpoint_dir={tmp_path}")
    in_order = [epoch for epoch in range(3) for _ in range(2)]
    assert found["list"] == [(1, in_order), (2, in_order), (11, [])]
    by_key = [epoch for epoch in range(3) for _ in range(MANY // 100)]
    assert found["multimap"] == [(1, by_key), (2, by_key), (11, [])]
    *_, last = sorted(tmp_path.rglob("*.manifest"))
    assert not decode(last.read_bytes(), last.name).views


@pytest.mark.parametrize(
    ("mode", "later"),
    [
        pytest.param(AccumulationMode.ACCUMULATING, [2, 3, 4, 5], id="in parts"),
        pytest.param(AccumulationMode.DISCARDING, [5], id="whole"),
    ],
)
def test_a_late_pane_of_the_default_trigger(
    spark_session: Any, mode: int, later: list[int]
) -> None:
    """It replaces the pane on time: with all values, or with the late ones alone."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(1), tag="main").add_elements(numbers(2, 3, 4), tag="side")
        events.advance_watermark_to(10, tag="side")
        events.add_elements(numbers(5), tag="side").add_elements(numbers(6), tag="main")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        late = beam.WindowInto(FixedWindows(10), accumulation_mode=mode, allowed_lateness=100)
        side = found["side"] | "S" >> late
        main = found["main"] | "M" >> beam.WindowInto(FixedWindows(10))
        table = side | beam.Map(lambda number: (number, number))
        return {
            "list": look_up(main, AsList(side)),
            "dict": main | beam.Map(lambda number, some: (number, sorted(some)), AsDict(table)),
        }

    found = harvest(spark_session, build)
    assert found["list"] == found["dict"] == [(1, [2, 3, 4]), (6, later)]
