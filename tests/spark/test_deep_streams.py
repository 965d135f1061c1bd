"""Streaming pipelines with more exchanges in a row than one Spark job has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterWatermark,
    Repeatedly,
)
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import FixedWindows, TimestampCombiner, TimestampedValue
from apache_beam.utils.windowed_value import PaneInfoTiming

from tests.spark.harvest import Harvest, harvest
from tests.stateful import Number

pytestmark = pytest.mark.spark

LATENESS = 20


def pairs(*times: int, key: str = "a") -> list[TimestampedValue]:
    """Return pairs of a key and a number, which is also the second of its timestamp."""
    return [TimestampedValue((key, time), time) for time in times]


def passed_through(elements: Any, groupings: int, name: str = "") -> Any:
    """Group pairs of a key and a number again and again, each by itself; they come out as they are.

    Each pane has one element, and its timestamp.
    """
    each = beam.WindowInto(
        FixedWindows(10),
        trigger=Repeatedly(AfterCount(1)),
        accumulation_mode=AccumulationMode.DISCARDING,
        timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST,
        allowed_lateness=LATENESS,
    )
    elements = elements | f"{name}each" >> each
    for number in range(groupings):
        elements = elements | f"{name}key {number}" >> beam.Map(lambda pair: (pair, None))
        elements = elements | f"{name}group {number}" >> beam.GroupByKey()
        elements = elements | f"{name}pair {number}" >> beam.Keys()
    return elements | f"{name}typed" >> beam.Map(lambda pair: pair).with_output_types(
        tuple[str, int]
    )


class Gathers(beam.DoFn):  # type: ignore[misc]
    """Gives out what it has seen of a key and window when the window ends, and what comes later."""

    SEEN = BagStateSpec("seen", VarIntCoder())
    END = TimerSpec("end", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        window: Any = beam.DoFn.WindowParam,
        seen: Any = beam.DoFn.StateParam(SEEN),
        end: Any = beam.DoFn.TimerParam(END),
    ) -> None:
        seen.add(pair[1])
        end.set(window.end)

    @on_timer(END)  # type: ignore[untyped-decorator]
    def give(
        self, key: Any = beam.DoFn.KeyParam, seen: Any = beam.DoFn.StateParam(SEEN)
    ) -> Iterator[tuple[str, list[int]]]:
        yield key, sorted(seen.read())


def events() -> Stream:
    """Return two keys, two windows, late elements, and one that comes too late."""
    stream = Stream().with_output_types(tuple[str, int])
    stream.add_elements(pairs(1, 2) + pairs(3, key="b")).advance_watermark_to(5)
    stream.add_elements(pairs(4, 11)).advance_watermark_to(10)
    stream.add_elements(pairs(5)).advance_watermark_to(32)
    stream.add_elements(pairs(6, 12)).advance_watermark_to_infinity()
    return stream


def results(passed: Any) -> dict[str, Any]:
    """Return panes, timers and states of a pipeline's last steps."""
    panes = beam.WindowInto(
        FixedWindows(10),
        trigger=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
        accumulation_mode=AccumulationMode.ACCUMULATING,
        timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST,
        allowed_lateness=LATENESS,
    )
    groups = passed | panes | "last" >> beam.GroupByKey()
    return {
        "groups": groups | beam.MapTuple(lambda key, numbers: (key, sorted(numbers))),
        "gathered": passed | beam.ParDo(Gathers()),
        "numbers": passed | beam.ParDo(Number()),
    }


def everything(found: Harvest) -> dict[str, list[Any]]:
    """Return all that Beam knows of the results."""
    return {
        label: sorted(
            (kept.value, kept.timestamp.micros, kept.window, repr(kept.pane)) for kept in each
        )
        for label, each in found.kept.items()
    }


def played(session: Any, groupings: int, *flags: str) -> Harvest:
    return harvest(session, lambda p: results(passed_through(p | events(), groupings)), *flags)


@pytest.mark.parametrize("groupings", [15, pytest.param(30, marks=pytest.mark.rare)])
def test_a_deep_pipeline_does_what_a_shallow_one_does(
    spark_session: Any, tmp_path: Path, groupings: int
) -> None:
    shallow = played(spark_session, 1)
    deep = played(spark_session, groupings, f"--checkpoint_dir={tmp_path}")
    assert everything(deep) == everything(shallow)
    assert sorted(
        (kept.pane.index, kept.value, PaneInfoTiming.to_string(kept.pane.timing))
        for kept in deep.kept["groups"]
    ) == [
        (0, ("a", [1, 2]), "EARLY"),
        (0, ("a", [11]), "EARLY"),
        (0, ("b", [3]), "EARLY"),
        (1, ("a", [1, 2, 4]), "EARLY"),
        (1, ("a", [11]), "ON_TIME"),
        (1, ("b", [3]), "ON_TIME"),
        (2, ("a", [1, 2, 4]), "ON_TIME"),
        (2, ("a", [11, 12]), "LATE"),
        (3, ("a", [1, 2, 4, 5]), "LATE"),
    ]
    assert deep["gathered"] == [
        ("a", [1, 2, 4]),
        ("a", [1, 2, 4, 5]),
        ("a", [11]),
        ("a", [11, 12]),
        ("b", [3]),
    ]
    assert not list(tmp_path.glob("*.rows"))
