"""A pipeline with a splittable DoFn, which checks that each step was taken once.

A separate module: executors import it by this name.
"""

import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils.timestamp import Duration

from integration.pipelines import Counted, kill_this_executor_once
from tests.spark.restrictions import RESTRICTION


class TakeSteps(beam.DoFn):  # type: ignore[misc]
    """Takes 20 ms for a step, defers now and then, and loses its executor at one of them.

    Args:
        fatal: the position at which ``kill -9`` comes, once per marker file; -1: nowhere.
        defers_every: after so many steps; 0: never.
    """

    def __init__(self, marker: str = "", fatal: int = -1, defers_every: int = 0) -> None:
        self._marker = marker
        self._fatal = fatal
        self._defers_every = defers_every

    def process(
        self, element: tuple[str, int], tracker: Any = RESTRICTION
    ) -> Iterator[tuple[str, int]]:
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            time.sleep(0.02)
            if position == self._fatal and element[0] == "long":
                kill_this_executor_once(self._marker)
            yield element[0], position
            position += 1
            if self._defers_every and not position % self._defers_every:
                tracker.defer_remainder(Duration(0.05))


def steps(pipeline: beam.Pipeline, elements: dict[str, int], take: TakeSteps) -> None:
    """Take the steps, group and count them, and look at both."""
    taken = pipeline | beam.Create(list(elements.items())) | beam.ParDo(take)
    expected = [(name, position) for name, count in elements.items() for position in range(count)]
    assert_that(taken, equal_to(expected), label="each step once")
    counts = taken | beam.combiners.Count.PerKey() | beam.ParDo(Counted("names"))
    assert_that(counts, equal_to(list(elements.items())), label="groups are whole")
    taken | "count" >> beam.ParDo(Counted("steps"))
