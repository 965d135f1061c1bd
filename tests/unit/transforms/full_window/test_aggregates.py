"""Records are added to one accumulator, several at a time where the CombineFn can do so."""

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.transforms.full_window.functions import AggregateDoFn


class OneByOne(beam.CombineFn):  # type: ignore[misc]
    def create_accumulator(self) -> list[Any]:
        return []

    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        return [*accumulator, element]

    def extract_output(self, accumulator: list[Any]) -> list[Any]:
        return accumulator


class Several(OneByOne):
    def add_inputs(self, accumulator: list[Any], elements: Iterable[Any]) -> list[Any]:
        return [*accumulator, [*elements]]


class OneByOneAgain(Several):
    def add_input(self, accumulator: list[Any], element: Any) -> list[Any]:
        return [*accumulator, -element]


@pytest.mark.parametrize(
    ("combine_fn", "expected"),
    [
        (OneByOne(), [*range(300)]),
        (Several(), [[*range(128)], [*range(128, 256)], [*range(256, 300)]]),
        (OneByOneAgain(), [-each for each in range(300)]),
        (beam.combiners.CountCombineFn(), 300),
        (beam.CombineFn.from_callable(sum), sum(range(300))),
    ],
)
def test_records_are_added_as_the_combine_fn_can_do_it(
    combine_fn: beam.CombineFn, expected: Any
) -> None:
    function = AggregateDoFn(combine_fn, ((), {}))
    assert function.run(iter(range(300)), (), {}) == [expected]


def test_arguments_are_passed_on() -> None:
    summed = beam.CombineFn.from_callable(lambda values, by: sum(values) * by)
    function = AggregateDoFn(summed, None)
    assert function.run([1, 2], (10,), {}) == [30]
