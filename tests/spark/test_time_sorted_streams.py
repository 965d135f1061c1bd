"""Input in the order of event time, in pipelines that run in epochs."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import StrUtf8Coder
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import BagStateSpec, TimerSpec, on_timer
from apache_beam.transforms.window import TimestampedValue

from tests.spark.asking import Asking
from tests.spark.harvest import HARNESSES, harvest_on

pytestmark = pytest.mark.spark


class Story(beam.DoFn):  # type: ignore[misc]
    """Tells what came so far: elements, and a timer half a second after each."""

    SO_FAR = BagStateSpec("so far", StrUtf8Coder())
    SOON = TimerSpec("soon", TimeDomain.WATERMARK)

    def process(
        self,
        pair: tuple[str, int],
        time: Any = beam.DoFn.TimestampParam,
        so_far: Any = beam.DoFn.StateParam(SO_FAR),
        soon: Any = beam.DoFn.TimerParam(SOON),
    ) -> Iterator[tuple[str, str]]:
        so_far.add(str(pair[1]))
        soon.set(time + 0.5, dynamic_timer_tag=str(pair[1]))
        yield pair[0], " ".join(so_far.read())

    @on_timer(SOON)  # type: ignore[untyped-decorator]
    def fire(
        self,
        tag: Any = beam.DoFn.DynamicTimerTagParam,
        so_far: Any = beam.DoFn.StateParam(SO_FAR),
    ) -> None:
        so_far.add(f"{tag}.5")


def at(key: str, *times: int) -> list[TimestampedValue]:
    return [TimestampedValue((key, time), time) for time in times]


@pytest.mark.parametrize("flags", HARNESSES)
def test_elements_and_timers_in_one_order(spark_session: Any, flags: tuple[str, ...]) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        events.add_elements(at("a", 3, 1) + at("b", 7)).add_elements(at("a", 2))
        events.advance_watermark_to(3).add_elements(at("a", 5, 1, 4) + at("b", 6))
        events.advance_watermark_to_infinity()
        story = p | events | "tell" >> beam.ParDo(Story()).with_output_types(tuple[str, str])
        return {"story": story}

    found = harvest_on(Asking(spark_session, in_order=["tell"]), build, *flags)
    assert found["story"] == [
        ("a", "1"),
        ("a", "1 1.5 2"),
        ("a", "1 1.5 2 2.5 3"),
        ("a", "1 1.5 2 2.5 3 3.5 4"),
        ("a", "1 1.5 2 2.5 3 3.5 4 4.5 5"),
        ("b", "6"),
        ("b", "6 6.5 7"),
    ]
