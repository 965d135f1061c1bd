"""Very many steps that are fused, one after the other."""

from typing import Any

import apache_beam as beam
import pytest

from tests.harvest import RARE_HARNESSES, harvest

pytestmark = pytest.mark.grpc

DEPTH = 300  # Beam builds the steps of a stage, and the runner runs them, by recursion


def _one_more(number: int) -> Any:
    yield number + 1


def _appended(numbers: list[int]) -> list[int]:
    return [*numbers[:1], len(numbers), 0]


def steps(kind: str, number: int) -> beam.PTransform:
    if kind == "values that may change":
        return beam.Map(_appended)
    of = (beam.Map(lambda x: x + 1), beam.FlatMap(lambda x: [x + 1]), beam.ParDo(_one_more))
    return of[number % 3]


@pytest.mark.parametrize("flags", RARE_HARNESSES)
@pytest.mark.parametrize(
    "kind", ["mixed", pytest.param("values that may change", marks=pytest.mark.rare)]
)
def test_a_chain(spark_session: Any, kind: str, flags: tuple[str, ...]) -> None:
    first, last = (0, DEPTH) if kind == "mixed" else ([7], [7, 3, 0])

    def build(p: beam.Pipeline) -> dict[str, Any]:
        collection = p | beam.Create([first] * 3)
        for number in range(DEPTH):
            collection = collection | f"step {number}" >> steps(kind, number)
        return {"last": collection}

    assert harvest(spark_session, build, *flags)["last"] == [last] * 3
