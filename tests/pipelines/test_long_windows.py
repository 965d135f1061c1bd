"""Windows that are open for many epochs."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics import Metrics
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from tests.harvest import RARE_HARNESSES, harvest

pytestmark = pytest.mark.rare
EPOCHS = 70


class Total(beam.CombineFn):  # type: ignore[misc]
    """Sums numbers, and counts what it merges."""

    def __init__(self) -> None:
        self.merged = Metrics.distribution("test", "merged")

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, element: int) -> int:
        return accumulator + element

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        every = list(accumulators)
        self.merged.update(len(every))
        return sum(every)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_accumulators_are_merged_before_the_window_ends(
    spark_session: Any, flags: tuple[str, ...]
) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream().with_output_types(tuple[str, int])
        for n in range(EPOCHS):
            events.add_elements([TimestampedValue(("a", n), 1)])
        events.advance_watermark_to_infinity()
        totals = p | events | beam.WindowInto(FixedWindows(10)) | beam.CombinePerKey(Total())
        return {"totals": totals}

    found = harvest(spark_session, build, *flags)
    assert found["totals"] == [("a", sum(range(EPOCHS)))]
    (merged,) = found.result.metrics().query()["distributions"]
    assert (merged.committed.count, merged.committed.sum) == (2, EPOCHS + 1)
    assert merged.committed.min == EPOCHS - 64 + 1
