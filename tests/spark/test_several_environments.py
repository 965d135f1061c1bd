"""Pipelines whose steps run in SDK harnesses of several kinds."""

import os
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import EmbeddedPythonEnvironment, ProcessEnvironment

from beam_spark_runner import SparkPortableRunner
from tests.harvest import LOOPBACK, harvest_on
from tests.pipelines.test_remote_harness import EXPECTED, build

pytestmark = [pytest.mark.spark, pytest.mark.grpc]

COLOURS = ("green", "blue")


class Scattering(SparkPortableRunner):
    """Has a third of the steps run in each of two environments, and a third where they would."""

    def run_portable_pipeline(
        self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions
    ) -> Any:
        components = pipeline.components
        for colour in COLOURS:
            environment = ProcessEnvironment("", env={"COLOUR": colour}).to_runner_api(None)
            components.environments[colour].CopyFrom(environment)
        leaves = [each for each in components.transforms.values() if not each.subtransforms]
        leaves.sort(key=lambda each: each.unique_name)
        for number, transform in enumerate(leaves):
            if transform.environment_id:
                here = (*COLOURS, transform.environment_id)
                transform.environment_id = here[number % len(here)]
        return super().run_portable_pipeline(pipeline, options)


@pytest.mark.rare
@pytest.mark.parametrize("flags", [(), LOOPBACK], ids=["embedded", "loopback"])
def test_a_pipeline_of_all_kinds(spark_session: Any, flags: tuple[str, ...]) -> None:
    found = harvest_on(Scattering(spark=spark_session), build, *flags)
    assert {label: found[label] for label in EXPECTED} == EXPECTED
    assert sorted(found["groups of groups"]) == [(k, [[n]]) for k, n in EXPECTED["counts"]]
    assert found.counter("words") == 500


class Placed(SparkPortableRunner):
    """Has the steps that are called after an environment run there."""

    def run_portable_pipeline(
        self, pipeline: beam_runner_api_pb2.Pipeline, options: PipelineOptions
    ) -> Any:
        components = pipeline.components
        for name, environment in {
            "green": ProcessEnvironment("", env={"COLOUR": "green"}),
            "blue": ProcessEnvironment("", env={"COLOUR": "blue"}),
            "plain": EmbeddedPythonEnvironment.default(),
        }.items():
            components.environments[name].CopyFrom(environment.to_runner_api(None))
        for transform in components.transforms.values():
            if transform.unique_name in components.environments:
                transform.environment_id = transform.unique_name
        return super().run_portable_pipeline(pipeline, options)


@pytest.mark.rare
def test_each_step_runs_in_its_own(spark_session: Any) -> None:
    def look(seen: list[Any]) -> list[Any]:
        return [*seen, os.environ.get("COLOUR"), os.getpid()]

    def walk(p: beam.Pipeline) -> dict[str, Any]:
        start = p | beam.Create([[]])
        return {
            "seen": start
            | "green" >> beam.Map(look)
            | "blue" >> beam.Map(look)
            | "plain" >> beam.Map(look)
        }

    (seen,) = harvest_on(Placed(spark=spark_session), walk)["seen"]
    assert seen[::2] == ["green", "blue", None]
    assert len({*seen[1::2]}) == 3
