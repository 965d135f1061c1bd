"""Where the code of a pipeline runs: which environments are kept, chosen, moved and merged."""

from dataclasses import replace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import (
    AnyOfEnvironment,
    DockerEnvironment,
    EmbeddedPythonEnvironment,
    ExternalEnvironment,
    ProcessEnvironment,
)

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.ids import CoderId, EnvironmentId, WindowingId
from beam_spark_runner.graph.model import Graph, Windowing
from beam_spark_runner.portable.alternatives import chosen_environment
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.placing import keep_code_together
from tests.unit.portable.pipelines import proto_of
from tests.unit.portable.steps import environments_in, kinds, steps_in


def in_environments(**environments: Any) -> Graph:
    """Return a graph with a step in each environment."""
    return steps_in(**{name: each.to_runner_api(None) for name, each in environments.items()})


def beside(graph: Graph, **environments: Any) -> Graph:
    """Return a graph with more environments, which no step uses."""
    more = in_environments(**environments).environments
    return replace(graph, environments={**graph.environments, **more})


def test_what_runs_in_the_workers_alone_stays_there() -> None:
    steps = in_environments(
        one=EmbeddedPythonEnvironment(), other=EmbeddedPythonEnvironment(resource_hints={"a": b"1"})
    )
    graph = beside(steps, unused=DockerEnvironment("image"))
    assert keep_code_together(graph) is graph


@pytest.mark.parametrize(
    ("alternatives", "chosen"),
    [
        ([DockerEnvironment("image"), ExternalEnvironment("host:1")], "external"),
        ([ExternalEnvironment("host:1"), ProcessEnvironment("run")], "process"),
        ([ProcessEnvironment("run"), EmbeddedPythonEnvironment()], "embedded_python"),
        ([AnyOfEnvironment([DockerEnvironment("image"), ProcessEnvironment("run")])], "process"),
        ([DockerEnvironment("image")], "docker"),
        ([], "anyof"),
    ],
)
def test_of_several_environments_one_is_chosen_that_runs_here(
    alternatives: list[Any], chosen: str
) -> None:
    theirs = AnyOfEnvironment(alternatives).to_runner_api(None)
    assert chosen_environment(theirs, "theirs").urn.split(":")[2] == chosen


def test_a_pipeline_is_read_with_the_environment_that_is_chosen() -> None:
    proto = proto_of(lambda p: p | beam.Impulse() | "look" >> beam.Map(print))
    alternatives = AnyOfEnvironment([DockerEnvironment("image"), ProcessEnvironment("run")])
    for each in proto.components.environments.values():
        each.CopyFrom(alternatives.to_runner_api(None))
    assert set(kinds(from_proto(proto)).values()) == {"process"}


def nested(depth: int) -> beam_runner_api_pb2.Environment:
    made = ProcessEnvironment("run").to_runner_api(None)
    for _ in range(depth):
        payload = beam_runner_api_pb2.AnyOfEnvironmentPayload(environments=[made])
        made = beam_runner_api_pb2.Environment(
            urn="beam:env:anyof:v1", payload=payload.SerializeToString()
        )
    return made


@pytest.mark.parametrize("depth", [11, 400, 3_000])
def test_alternatives_that_nest_deep_are_refused(depth: int) -> None:
    with pytest.raises(InvalidPipelineError, match=r"^the environment theirs: .* than 10 deep"):
        chosen_environment(nested(depth), "theirs")
    assert chosen_environment(nested(10), "theirs").urn == urns.ENVIRONMENT_PROCESS


def test_alternatives_that_cannot_be_decoded_are_refused() -> None:
    theirs = beam_runner_api_pb2.Environment(urn="beam:env:anyof:v1", payload=b"\xff")
    with pytest.raises(InvalidPipelineError, match=r"^the environment theirs: .*decoded"):
        chosen_environment(theirs, "theirs")


@pytest.mark.parametrize("other", [ProcessEnvironment("run"), ExternalEnvironment("host:1")])
def test_next_to_sdk_harnesses_all_code_runs_in_some(other: Any) -> None:
    graph = in_environments(ours=EmbeddedPythonEnvironment(), theirs=other)
    kept = keep_code_together(graph)
    ours = environments_in(kept)["ours"]
    assert ours.urn == "beam:env:process:v1"
    assert beam_runner_api_pb2.ProcessPayload.FromString(ours.payload).command == ""
    theirs = EnvironmentId("theirs")
    assert kept.environments[theirs] == graph.environments[theirs]


def test_code_that_needs_files_does_not_run_in_the_workers() -> None:
    ours = EmbeddedPythonEnvironment().to_runner_api(None)
    ours.dependencies.add(role_urn="r")
    assert kinds(keep_code_together(steps_in(ours=ours))) == {"ours": "process"}


@pytest.mark.parametrize(
    ("window_fn", "kind"),
    [("beam:window_fn:pickled_python:v1", "process"), (urns.WINDOW_FN_FIXED, "embedded_python")],
)
def test_window_fns_of_users_are_code_too(window_fn: str, kind: str) -> None:
    steps = in_environments(steps=EmbeddedPythonEnvironment())
    windowing = Windowing(
        coded=b"",
        window_fn_urn=window_fn,
        window_coder=CoderId("windows"),
        environment=EnvironmentId("theirs"),
    )
    graph = beside(steps, theirs=DockerEnvironment("image"))
    kept = keep_code_together(replace(graph, windowings={WindowingId("strategy"): windowing}))
    assert kinds(kept) == {"steps": kind, "theirs": "docker"}


def test_apart_no_environment_is_of_the_workers_even_if_no_step_uses_it() -> None:
    steps = in_environments(steps=ProcessEnvironment("run"))
    graph = beside(steps, unused=EmbeddedPythonEnvironment())
    kept = keep_code_together(graph, apart=True)
    assert kinds(kept) == {"steps": "process", "unused": "process"}
