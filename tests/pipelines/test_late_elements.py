"""How many elements come too late, step by step."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import AsList
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.userstate import CombiningValueStateSpec
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

from beam_spark_runner import SparkPortableRunner
from tests.harvest import RARE_HARNESSES, harvest_on
from tests.spark.asking import Asking
from tests.stateful import Number

NAME = "dropped_due_to_lateness"


def at(*times: int) -> list[TimestampedValue]:
    return [TimestampedValue((f"key {time}", time), time) for time in times]


def dropped(result: Any) -> dict[str, int]:
    """Return the counters as committed, by the label of the step."""
    found = result.metrics().query(MetricsFilter().with_name(NAME))["counters"]
    assert {each.key.metric.namespace for each in found} <= {"beam_spark_runner"}
    return {each.key.step: each.committed for each in found}


class AddAside(beam.DoFn):  # type: ignore[misc]
    """Has a state and a side input."""

    SUM = CombiningValueStateSpec("sum", sum)

    def process(
        self, pair: tuple[str, int], side: list[Any], so_far: Any = beam.DoFn.StateParam(SUM)
    ) -> Iterator[tuple[str, int]]:
        so_far.add(len(side))
        yield pair[0], so_far.read()


NUMBER = beam.ParDo(Number()).with_output_types(tuple[str, int])


def played(p: beam.Pipeline) -> Any:
    """Three elements come too late for their windows, and another one for its turn."""
    events = Stream().with_output_types(tuple[str, int])
    events.add_elements(at(1, 12)).advance_watermark_to(11)
    events.add_elements(at(2, 9, 10, 13)).advance_watermark_to(15)
    events.add_elements(at(3)).advance_watermark_to_infinity()
    return p | events | beam.WindowInto(FixedWindows(10))


def test_each_step_counts_what_it_drops(spark_session: Any) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = played(p)
        # Pairs: the Python SDK takes the coder of keys from any input of a step with state.
        aside = (
            p | "aside" >> beam.Create([("x", 1)]) | "windows" >> beam.WindowInto(FixedWindows(10))
        )
        side = AsList(aside)
        look = beam.Map(lambda pair, side: (pair[0], len(side)), side)
        into_two = pairs | "slide" >> beam.WindowInto(SlidingWindows(10, 5))
        return {
            "group": pairs | "group" >> beam.GroupByKey() | beam.MapTuple(lambda k, v: (k, [*v])),
            "stable": pairs | "stable" >> NUMBER,
            "look": pairs | "look" >> look.with_output_types(tuple[str, int]),
            "state and look": pairs | "state and look" >> beam.ParDo(AddAside(), side),
            "sum": into_two | "sum" >> beam.CombinePerKey(sum),
        }

    found = harvest_on(Asking(spark_session, stable=["stable"]), build)
    assert dropped(found.result) == {
        "group": 3,
        "stable": 3,
        "look": 3,
        "state and look": 3,
        "sum/Group": 5,  # of the two windows of 9, one is open when that comes
    }


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_steps_with_state_count_what_they_drop(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        pairs = played(p)
        return {"number": pairs | "number" >> NUMBER, "in order": pairs | "in order" >> NUMBER}

    found = harvest_on(Asking(spark_session, in_order=["in order"]), build, *flags)
    assert dropped(found.result) == {"number": 3, "in order": 4}


def test_a_later_run_continues_counting(spark_session: Any, tmp_path: Path) -> None:
    """The first run fails in an epoch that drops elements, which the second one drops again."""
    stop = tmp_path / "stop"
    stop.touch()

    def check(pair: tuple[str, int]) -> tuple[str, int]:
        if pair[1] == 25 and stop.exists():
            raise RuntimeError("stopped")
        return pair

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(at(1, 12)).advance_watermark_to(20)
        events.add_elements(at(*range(10, 17))).advance_watermark_to(21)
        events.add_elements(at(2, 3, 25)).advance_watermark_to_infinity()
        pairs = p | events | beam.WindowInto(FixedWindows(10))
        numbers = pairs | "number" >> NUMBER
        checked = pairs | beam.Map(check).with_output_types(tuple[str, int])
        return {"numbers": numbers, "sums": checked | "sum" >> beam.CombinePerKey(sum)}

    options = PipelineOptions([f"--checkpoint_dir={tmp_path / 'checkpoints'}"])
    pipeline = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session), options=options)
    build(pipeline)
    first = pipeline.run()
    with pytest.raises(RuntimeError, match="stopped"):
        first.wait_until_finish()
    assert dropped(first) == {"number": 7, "sum/Group": 7}
    stop.unlink()
    second = beam.Pipeline(runner=SparkPortableRunner(spark=spark_session), options=options)
    build(second)
    result = second.run()
    result.wait_until_finish()
    assert dropped(result) == {"number": 9, "sum/Group": 9}
