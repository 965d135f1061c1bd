"""Elements with timestamps after the end of their windows, in streams: none is lost."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsSingleton
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp

from tests.harvest import harvest
from tests.spark.restrictions import RESTRICTION

TIMES = [MAX_TIMESTAMP, GlobalWindow().max_timestamp() + 5, Timestamp(7)]


class Counts(beam.DoFn):  # type: ignore[misc]
    """Claims all positions; there are more elements than one epoch has time for."""

    def process(
        self, element: tuple[str, int], tracker: Any = RESTRICTION
    ) -> Iterator[tuple[str, str]]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            yield "k", f"{element[0]}/{position}"
            position += 1


def with_a_side_input(p: beam.Pipeline, pairs: Any) -> Any:
    side = AsSingleton(p | "Side" >> beam.Create([2]))
    look_up = beam.Map(lambda pair, number: ("k", f"{pair[0]}/{number}"), side)
    return pairs | look_up.with_output_types(tuple[str, str])


def of_restrictions(p: beam.Pipeline, pairs: Any) -> Any:
    return pairs | beam.ParDo(Counts()).with_output_types(tuple[str, str])


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (with_a_side_input, ["0/2", "1/2", "2/2"]),
        (of_restrictions, [f"{name}/{position}" for name in "012" for position in (0, 1)]),
    ],
)
def test_what_a_step_holds_back_is_grouped(
    spark_session: Any, step: Callable[[beam.Pipeline, Any], Any], found: list[str]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = p | beam.Create([("0", 2), ("1", 2), ("2", 2)])
        at = numbers | beam.Map(lambda pair: TimestampedValue(pair, TIMES[int(pair[0])]))
        seen = step(p, at)
        return {"groups": seen | beam.GroupByKey() | beam.MapTuple(lambda _, seen: sorted(seen))}

    options = ("--streaming", "--batch_interval_millis=1")
    assert harvest(spark_session, build, *options)["groups"] == [found]
