"""Which steps are the user's own, and which are parts that Beam has made."""

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.portable.applied_steps import steps_of_parts
from beam_spark_runner.portable.pipeline import from_proto


class Score(beam.PTransform):  # type: ignore[misc]
    """A composite of a user, with a name from Beam inside."""

    def expand(self, rows: Any) -> Any:
        return rows | "Parse" >> beam.Map(int) | "Sum" >> beam.CombineGlobally(sum)


@beam.ptransform_fn  # type: ignore[untyped-decorator]
def double(rows: Any) -> Any:
    return rows | "Twice" >> beam.Map(str)


def steps_of(apply: Callable[[beam.Pipeline], object]) -> list[str]:
    """Return the names by which users know the steps of a pipeline, each once, in order."""
    pipeline = beam.Pipeline()
    apply(pipeline)
    graph = from_proto(pipeline.to_runner_api())
    return list(dict.fromkeys(step.step for step in graph.transforms.values()))


@pytest.mark.parametrize(
    ("apply", "steps"),
    [
        pytest.param(lambda p: p | beam.Create([1]), ["Create"], id="a composite of Beam"),
        pytest.param(
            lambda p: p | "Read" >> beam.Create([1]) | "Write" >> beam.io.WriteToText("x"),
            ["Read", "Write"],
            id="with names of its user",
        ),
        pytest.param(
            lambda p: p | beam.Create([1]) | Score(),
            ["Create", "Score/Parse", "Score/Sum"],
            id="a composite of a user",
        ),
        pytest.param(
            lambda p: p | beam.Create([1]) | "Double" >> double(),
            ["Create", "Double/Twice"],
            id="a function that is a composite",
        ),
        pytest.param(
            lambda p: p | beam.Create([1]) | "Both" >> (beam.Map(str) | "Len" >> beam.Map(len)),
            ["Create", "Both/Map(str)", "Both/Len"],
            id="a chain",
        ),
    ],
)
def test_steps_are_those_that_a_user_has_applied(
    apply: Callable[[beam.Pipeline], object], steps: list[str]
) -> None:
    assert steps_of(apply) == steps


def test_an_sdk_that_does_not_say_whose_composites_they_are() -> None:
    pipeline = beam_runner_api_pb2.Pipeline(root_transform_ids=["1", "gone"])
    transforms = pipeline.components.transforms
    transforms["1"].unique_name, transforms["2"].unique_name = "Read", "Read/Impulse"
    transforms["1"].subtransforms.extend(["2", "1"])  # also: one that contains itself
    assert steps_of_parts(pipeline) == {}
    assert set(transforms) == {"1", "2"}
