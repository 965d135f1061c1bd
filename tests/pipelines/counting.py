"""A splittable DoFn that counts, and has to be resumed again and again."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration

from tests.spark.restrictions import RESTRICTION


class Count(beam.DoFn):  # type: ignore[misc]
    """Counts for each element, three numbers at a time."""

    @beam.DoFn.unbounded_per_element()  # type: ignore[untyped-decorator]
    def process(
        self, element: tuple[str, int], tracker: Any = RESTRICTION
    ) -> Iterator[TimestampedValue]:
        begun = tracker.current_restriction().start
        for number in range(begun, begun + 3):
            if not tracker.try_claim(number):
                return
            yield TimestampedValue((element[0], number), number)
        tracker.defer_remainder(Duration(0.05))
