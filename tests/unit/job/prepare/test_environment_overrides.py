"""Environments that run in place of those that a pipeline names."""

import json
from pathlib import Path
from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import (
    DockerEnvironment,
    ExternalEnvironment,
    python_sdk_capabilities,
)

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.job.prepare.default_environment import default_environment
from beam_spark_runner.job.prepare.environment_overrides import (
    override_environments,
    read_overrides,
)
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.read_options import EnvironmentOptions
from tests.unit.portable.steps import environments_in, steps_in

GO = ["beam:version:sdk_base:go:2.77.0"]
DOCKER = "beam:env:docker:v1"


def graph_in(**capabilities: list[str]) -> Graph:
    """Return a graph with containers, and a worker pool for the environment ``pool``."""
    environments = {}
    for name, each in capabilities.items():
        made: Any = (
            ExternalEnvironment("pool:1", capabilities=each)
            if name == "pool"
            else DockerEnvironment(f"image of {name}", capabilities=each)
        )
        environments[name] = made.to_runner_api(None)
        environments[name].dependencies.add().type_payload = b"file"
    return steps_in(**environments)


def overrides(**of_type: Any) -> str:
    return json.dumps({f"beam:env:{name}:v1": value for name, value in of_type.items()})


def process(command: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {"environment_type": "PROCESS"}
    if command is not None:
        made["environment_config"] = {"command": command}
    return made


def test_environments_are_replaced_by_their_urn() -> None:
    graph = graph_in(go=GO, pool=GO)
    changed = override_environments(graph, read_overrides(overrides(docker=process("/opt/boot"))))
    found = environments_in(changed)
    assert (found["go"].urn, found["pool"].urn) == ("beam:env:process:v1", "beam:env:external:v1")
    payload = beam_runner_api_pb2.ProcessPayload.FromString(found["go"].payload)
    assert payload.command == "/opt/boot"


def test_capabilities_and_files_stay() -> None:
    graph = graph_in(go=GO)
    changed = override_environments(graph, read_overrides(overrides(docker=process("/opt/boot"))))
    found = environments_in(changed)["go"]
    assert list(found.capabilities) == GO
    assert [each.type_payload for each in found.dependencies] == [b"file"]


@pytest.mark.parametrize(
    ("value", "urn", "says"),
    [
        ({"environment_type": "DOCKER", "environment_config": "mirror/go:1"}, DOCKER, "mirror/go"),
        (
            {"environment_type": "external", "environment_config": "pool:7"},
            "beam:env:external:v1",
            "pool:7",
        ),
        (process('boot --of "go"'), "beam:env:process:v1", 'boot --of "go"'),
    ],
)
def test_an_environment_becomes_what_the_option_says(
    value: dict[str, Any], urn: str, says: str
) -> None:
    graph = graph_in(go=GO)
    changed = override_environments(graph, read_overrides(overrides(docker=value)))
    found = environments_in(changed)["go"]
    assert found.urn == urn
    assert says.encode() in found.payload


def test_each_environment_is_replaced_once() -> None:
    graph = graph_in(go=GO, pool=GO)
    given = overrides(
        docker={"environment_type": "EXTERNAL", "environment_config": "pool:7"},
        external={"environment_type": "DOCKER", "environment_config": "image:7"},
    )
    changed = override_environments(graph, read_overrides(given))
    found = environments_in(changed)
    assert (found["go"].urn, found["pool"].urn) == ("beam:env:external:v1", DOCKER)


@pytest.mark.parametrize("value", [process(), process(""), {"environment_type": "DOCKER"}])
def test_what_is_python_s_is_not_for_other_sdks(value: dict[str, Any]) -> None:
    given = read_overrides(overrides(docker=value))
    python = graph_in(python=list(python_sdk_capabilities()))
    changed = override_environments(python, given)
    assert b"image of" not in environments_in(changed)["python"].payload
    with pytest.raises(OptionsError, match="the environment other of the pipeline needs another"):
        override_environments(graph_in(other=GO), given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{", "is not valid JSON"),
        ("[]", "is not of the form"),
        ('{"beam:env:podman:v1": {}}', r"beam:env:podman:v1 is not the URN of an environment"),
        (overrides(docker="PROCESS"), r'v1: "PROCESS" is not as in'),
        (overrides(docker={"environment_config": "x"}), "is not as in"),
        (overrides(docker={**process(), "command": "x"}), "is not as in"),
        (overrides(docker={"environment_type": "NOWHERE"}), "docker:v1: NOWHERE is not supported"),
        (overrides(docker={"environment_type": "EMBEDDED"}), "not by EMBEDDED"),
        (overrides(docker={"environment_type": "LOOPBACK"}), "not by LOOPBACK"),
        (overrides(docker={"environment_type": "EXTERNAL"}), "docker:v1: EXTERNAL needs the add"),
        (
            overrides(docker={"environment_type": "PROCESS", "environment_config": {"comand": 1}}),
            "docker:v1: PROCESS has the keys command and env, not comand",
        ),
    ],
)
def test_mistakes_in_overrides_are_named(given: str, problem: str) -> None:
    with pytest.raises(OptionsError, match=problem):
        read_overrides(given)


def test_as_an_option_of_a_pipeline() -> None:
    text = overrides(docker=process("/opt/boot"))
    config = RunnerConfig.from_options(PipelineOptions([f"--environment_config={text}"]))
    assert (config.environment, config.environment_overrides) == ("embedded", text)


def test_clients_of_a_job_server_cannot_decide() -> None:
    flags = [f"--environment_config={overrides(docker=process())}", "--job_endpoint=localhost:1"]
    with pytest.raises(OptionsError, match=r"--environment_config: .* the job server's own option"):
        RunnerConfig.from_options(PipelineOptions(flags))


def test_the_pipeline_s_own_environment_may_have_packages(tmp_path: Path) -> None:
    """It runs in processes then, whose config the option is not."""
    packages = tmp_path / "requirements.txt"
    packages.touch()
    flags = [f"--environment_config={overrides(docker=process())}"]
    options = PipelineOptions([*flags, f"--requirements_file={packages}"])
    kind = RunnerConfig.from_options(options).environment
    given = options.view_as(EnvironmentOptions)
    made = default_environment(kind, given).to_runner_api(None)
    assert (kind, made.urn) == ("process", "beam:env:process:v1")
    assert not beam_runner_api_pb2.ProcessPayload.FromString(made.payload).command
