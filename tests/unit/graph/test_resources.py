"""What resource hints ask for."""

import apache_beam as beam
import pytest
from apache_beam.transforms.resources import parse_resource_hints

from beam_spark_runner.graph.resources import NO_RESOURCES, Resources, merged, resources_of
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.placing import merge_environments


def _hints(**hints: str) -> dict[str, bytes]:
    return {urn: bytes(value) for urn, value in parse_resource_hints(hints).items()}


def test_all_hints_of_beam() -> None:
    hints = _hints(
        min_ram="4GB",
        cpu_count="2",
        max_active_bundles_per_worker="3",
        accelerator="type:nvidia-tesla-t4;count:2;install-nvidia-driver",
    )
    assert resources_of("Step", hints) == Resources(
        ram_bytes=4_000_000_000,
        cpus=2,
        max_bundles=3,
        accelerators=2,
        accelerator="nvidia-tesla-t4",
        steps=("Step",),
    )


@pytest.mark.parametrize(
    ("hint", "value", "problem"),
    [
        ("cpu_count", b"two", "cpu_count: 'two' is not a positive number"),
        ("cpu_count", b"0", "cpu_count: '0' is not a positive number"),
        ("accelerator", b"gpu", "accelerator: 'gpu' has no type"),
        ("accelerator", b"type:t4;count:x", "accelerator: 'x' is not a positive number"),
    ],
)
def test_a_hint_that_cannot_be_understood_asks_for_nothing(
    hint: str, value: bytes, problem: str
) -> None:
    found = resources_of("Step", {f"beam:resources:{hint}:v1": value})
    assert found.problems[0].startswith(problem)
    assert (found.cpus, found.accelerators, found.steps) == (0, 0, ("Step",))


def test_other_hints_ask_for_nothing() -> None:
    assert resources_of("Step", {"beam:resources:canary:v1": b"1"}) == NO_RESOURCES


def test_what_is_enough_for_several_steps() -> None:
    found = merged(
        [
            Resources(cpus=2, max_bundles=3, steps=("a",)),
            NO_RESOURCES,
            Resources(cpus=1, ram_bytes=5, max_bundles=2, steps=("b",)),
        ]
    )
    assert found == Resources(cpus=2, ram_bytes=5, max_bundles=2, steps=("a", "b"))


def test_steps_have_the_hints_of_their_environments() -> None:
    pipeline = beam.Pipeline()
    numbers = pipeline | beam.Create([1])
    numbers | "large" >> beam.Map(str).with_resource_hints(cpu_count="2")
    numbers | "small" >> beam.Map(str)
    graph = merge_environments(from_proto(pipeline.to_runner_api()))
    cpus = {each.name: each.resources.cpus for each in graph.transforms.values()}
    assert (cpus["large"], cpus["small"]) == (2, 0)
    assert len(graph.environments) == 1
