"""Declarative keyed steps: in all kinds of harnesses, in batch and in epochs, on other runners."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import TimestampedValue

from beam_spark_runner.transforms import DeclarativeKeyedProcess
from tests.declared import NewIds
from tests.harvest import HARNESSES, LOOPBACK, harvest

EVERYWHERE = [*HARNESSES, pytest.param(LOOPBACK, id="loopback", marks=pytest.mark.rare)]
IDS: list[Any] = [("a", "x"), ("a", "y"), ("a", "x"), ("b", "x")]
NEW: list[Any] = [("a", "x", 1), ("a", "y", 2), ("b", "x", 1)]
ALL: list[Any] = [("a", [("x", 1), ("y", 2)]), ("b", [("x", 1)])]


def in_order(p: beam.Pipeline, elements: list[Any]) -> Any:
    """Return pairs of strings in one bundle."""
    each = beam.FlatMap(lambda elements: elements).with_output_types(tuple[str, str])
    return p | beam.Create([elements], reshuffle=False) | each


def ids_of(p: beam.Pipeline) -> Any:
    return in_order(p, IDS)


@pytest.mark.parametrize("flags", EVERYWHERE)
def test_states_and_timers_in_batch(spark_session: Any, flags: tuple[str, ...]) -> None:
    found = harvest(
        spark_session,
        lambda p: {"new": ids_of(p) | DeclarativeKeyedProcess(NewIds())},
        *flags,
    )
    assert sorted(found["new"], key=str) == sorted(NEW + ALL, key=str)


@pytest.mark.parametrize("flags", EVERYWHERE)
def test_states_and_timers_in_epochs(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = (
            Stream()
            .advance_watermark_to(0)
            .add_elements([TimestampedValue(each, 1) for each in IDS[:2]])
            .advance_watermark_to(10)
            .add_elements([TimestampedValue(each, 11) for each in IDS[2:]])
            .advance_watermark_to(200)
            .add_elements([TimestampedValue(("a", "x"), 201)])
            .advance_watermark_to_infinity()
        )
        pairs = p | events | beam.Map(lambda each: each).with_output_types(tuple[str, str])
        return {"new": pairs | DeclarativeKeyedProcess(NewIds())}

    found = harvest(spark_session, build, "--streaming", *flags)
    again = [("a", "x", 3), ("a", [("x", 3)])]
    assert sorted(found["new"], key=str) == sorted(NEW + ALL + again, key=str)


def test_other_runners_run_a_do_fn() -> None:
    with beam.Pipeline("FnApiRunner") as p:
        new = ids_of(p) | DeclarativeKeyedProcess(NewIds())
        assert_that(new, equal_to(NEW + ALL))
