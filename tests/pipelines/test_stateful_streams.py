"""Steps with state in pipelines that run in epochs: side inputs, windows without end, batches."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import AsSingleton
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.userstate import CombiningValueStateSpec
from apache_beam.transforms.window import FixedWindows, GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import Duration

from tests.harvest import RARE_HARNESSES, harvest

DAY_S = 24 * 3600


def numbers(*times: int) -> list[TimestampedValue]:
    return [TimestampedValue(time, time) for time in times]


def keyed(collection: Any) -> Any:
    pair = beam.Map(lambda number: ("a", number)).with_output_types(tuple[str, int])
    return collection | "key" >> pair


class Counted(beam.DoFn):  # type: ignore[misc]
    """Emits a number, and how many its key and window have had so far."""

    COUNT = CombiningValueStateSpec("count", sum)

    def process(
        self, pair: tuple[str, int], count: Any = beam.DoFn.StateParam(COUNT)
    ) -> Iterator[tuple[int, int]]:
        count.add(1)
        yield pair[1], count.read()


class Beside(beam.DoFn):  # type: ignore[misc]
    """The same, with a side input."""

    def process(
        self, pair: tuple[str, int], side: int, count: Any = beam.DoFn.StateParam(Counted.COUNT)
    ) -> Iterator[tuple[int, int, int]]:
        count.add(1)
        yield pair[1], side, count.read()


class InBatches(beam.DoFn):  # type: ignore[misc]
    """Emits what ``Counted`` does, in a batch."""

    @beam.DoFn.yields_batches  # type: ignore[untyped-decorator]
    def process(
        self, pair: tuple[str, int], count: Any = beam.DoFn.StateParam(Counted.COUNT)
    ) -> Iterator[list[int]]:
        count.add(1)
        yield [pair[1], count.read()]

    def infer_output_type(self, input_element_type: Any) -> Any:
        return int


def test_a_side_input_of_a_window_that_has_changed(spark_session: Any) -> None:
    """The next pane replaces the value that the same window had in an earlier epoch."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(output_tags=["main", "side"])
        events.add_elements(numbers(7), tag="side").add_elements(numbers(1), tag="main")
        events.add_elements(numbers(8), tag="side").add_elements(numbers(2), tag="main")
        events.advance_watermark_to_infinity("main").advance_watermark_to_infinity("side")
        found = p | events
        fires = beam.WindowInto(
            FixedWindows(10),
            trigger=Repeatedly(AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        side = AsSingleton(found["side"] | "S" >> fires)
        main = found["main"] | "M" >> beam.WindowInto(FixedWindows(10))
        return {"seen": keyed(main) | beam.ParDo(Beside(), side)}

    assert harvest(spark_session, build)["seen"] == [(1, 7, 1), (2, 8, 2)]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
@pytest.mark.parametrize(
    "windows",
    [
        pytest.param(GlobalWindows(), id="global"),
        pytest.param(FixedWindows(10), id="fixed windows", marks=pytest.mark.rare),
    ],
)
def test_windows_that_expire_at_the_end_of_time(
    spark_session: Any, flags: tuple[str, ...], windows: Any
) -> None:
    """Their state goes with the end of all input, and the pipeline ends."""
    lateness = Duration(seconds=2 * DAY_S if windows == GlobalWindows() else 10_000 * 365 * DAY_S)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(int)
        events.add_elements(numbers(1)).add_elements(numbers(2)).advance_watermark_to_infinity()
        main = p | events | beam.WindowInto(windows, allowed_lateness=lateness)
        return {"seen": keyed(main) | beam.ParDo(Counted())}

    assert harvest(spark_session, build, *flags)["seen"] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("is_streaming", [False, True])
def test_batches_that_a_step_with_state_emits(spark_session: Any, is_streaming: bool) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(int).add_elements(numbers(5, 6))
        source = events.advance_watermark_to_infinity() if is_streaming else beam.Create([5, 6])
        pairs = keyed(p | source)
        return {"seen": pairs | beam.ParDo(InBatches())}

    found = harvest(spark_session, build)["seen"]
    assert sorted(found) == [1, 2, 5, 6]
