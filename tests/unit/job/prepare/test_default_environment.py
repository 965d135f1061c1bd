"""From options to the environment of a pipeline's steps."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import (
    DockerEnvironment,
    python_sdk_docker_capabilities,
)

from beam_spark_runner.core.errors import (
    OptionsError,
    PipelineRefusedError,
)
from beam_spark_runner.job.prepare.default_environment import default_environment
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.read_options import EnvironmentOptions
from beam_spark_runner.portable.sdk_options import options_for, options_json
from tests.compiled import compile_pipeline


def environment(*flags: str) -> Any:
    options = PipelineOptions(list(flags))
    return default_environment(
        RunnerConfig.from_options(options).environment, options.view_as(EnvironmentOptions)
    ).to_runner_api(None)


def test_user_code_runs_in_the_workers_if_nothing_is_said() -> None:
    assert environment().urn == "beam:env:embedded_python:v1"


@pytest.mark.parametrize(
    ("flags", "command", "variables"),
    [
        (["--environment_config={}"], "", {}),
        (['--environment_config={"command": "run me", "env": {"A": 1}}'], "run me", {"A": "1"}),
        (
            [
                "--environment_options=process_command=run",
                "--environment_options=process_variables=A=1,B=x=y",
            ],
            "run",
            {"A": "1", "B": "x=y"},
        ),
        ([], "", {}),
    ],
)
def test_an_environment_of_processes_has_a_command_and_variables(
    flags: list[str], command: str, variables: dict[str, str]
) -> None:
    found = environment("--environment_type=PROCESS", *flags)
    payload = beam_runner_api_pb2.ProcessPayload.FromString(found.payload)
    assert found.urn == "beam:env:process:v1"
    assert (payload.command, dict(payload.env)) == (command, variables)
    assert found.capabilities
    assert not found.dependencies


@pytest.mark.parametrize(
    ("flags", "image"),
    [
        (["--environment_config=registry:5000/a/b:1"], "registry:5000/a/b:1"),
        (["--environment_options=docker_container_image=a"], "a"),
        ([], DockerEnvironment.default_docker_image()),
    ],
)
def test_an_environment_of_containers_has_an_image(flags: list[str], image: str) -> None:
    found = environment("--environment_type=DOCKER", *flags)
    assert found.urn == "beam:env:docker:v1"
    assert beam_runner_api_pb2.DockerPayload.FromString(found.payload).container_image == image


@pytest.mark.parametrize("image", [" ", "{}", "--privileged"])
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(OptionsError, match="is not the name of a container image"):
        environment("--environment_type=DOCKER", f"--environment_config={image}")


@pytest.mark.parametrize(
    ("flags", "url", "params"),
    [
        (["--environment_config=host:1"], "host:1", {}),
        (["--environment_options=external_service_address=host:1"], "host:1", {}),
        (['--environment_config={"url": "host:1", "params": {"a": "b"}}'], "host:1", {"a": "b"}),
    ],
)
def test_an_environment_of_worker_pools_has_a_url_and_parameters(
    flags: list[str], url: str, params: dict[str, str]
) -> None:
    found = environment("--environment_type=EXTERNAL", *flags)
    payload = beam_runner_api_pb2.ExternalPayload.FromString(found.payload)
    assert found.urn == "beam:env:external:v1"
    assert (payload.endpoint.url, dict(payload.params)) == (url, params)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--environment_config=run", "'run' is not valid JSON: "),
        ("--environment_config={bad", "'{bad' is not valid JSON: "),
        ("--environment_config=[1]", "'[1]' is not of the form"),
        (
            '--environment_config={"comand": "x"}',
            "PROCESS has the keys command and env, not comand",
        ),
        ('--environment_config={"command": ["a"]}', "command: ['a'] is not a string"),
        ('--environment_config={"command": 5}', "command: 5 is not a string"),
        ('--environment_config={"command": false}', "command: False is not a string"),
        ('--environment_config={"command": "  "}', "command: '  ' is blank"),
        (
            """--environment_config={"command": "run 'me"}""",
            """command: "run 'me" cannot be split: No closing quotation""",
        ),
        ('--environment_config={"env": "A=1"}', "env: 'A=1' is not of the form"),
        ('--environment_config={"env": []}', "env: [] is not of the form"),
        ('--environment_config={"env": {"A": null}}', "env: A is None, which is not a string"),
        ('--environment_config={"env": {"A": ["x"]}}', "env: A is ['x'], which is not a string"),
        ("--environment_options=process_command='run", "cannot be split"),
        ("--environment_options=process_command", "process_command has no value"),
        ("--environment_options=process_variables=A", "process_variables: 'A' has no value"),
    ],
)
def test_a_process_that_cannot_be_names_its_option(flag: str, problem: str) -> None:
    with pytest.raises(OptionsError) as raised:
        environment("--environment_type=PROCESS", flag)
    assert raised.value.option == flag.partition("=")[0].removeprefix("--")
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("", "EXTERNAL needs the address of a worker pool"),
        ("--environment_config={bad", "'{bad' is not valid JSON: "),
        ('--environment_config={"params": {}}', "url: None is not the address"),
        ('--environment_config={"url": 5}', "url: 5 is not the address"),
        ('--environment_config={"url": " "}', "url: ' ' is not the address"),
        ('--environment_config={"url": "x", "params": ["a"]}', "params: ['a'] is not of the form"),
        (
            '--environment_config={"url": "x", "params": {"x": 1}}',
            "params: x is 1, which is not a string",
        ),
        (
            '--environment_config={"url": "x", "parms": {}}',
            "EXTERNAL has the keys url and params, not parms",
        ),
    ],
)
def test_a_pool_that_cannot_be_names_its_option(flag: str, problem: str) -> None:
    with pytest.raises(OptionsError) as raised:
        environment("--environment_type=EXTERNAL", *([flag] if flag else []))
    assert raised.value.option == "environment_config"
    assert problem in str(raised.value)


def test_options_travel_as_sdks_read_them() -> None:
    given = {"n": 1, "flag": True, "some": ["a"], "none": None, "object": object(), "x": 1.5}
    coded = options_json(given)
    assert coded == (
        '{"beam:option:flag:v1": true, "beam:option:n:v1": 1, "beam:option:some:v1": ["a"], '
        '"beam:option:x:v1": 1.5}'
    )
    python = DockerEnvironment("a", capabilities=python_sdk_docker_capabilities())
    go = DockerEnvironment("b", capabilities=["beam:version:sdk_base:go:apache/beam_go_sdk:2.77.0"])
    for environment, number in ((python, "1"), (go, 1), (DockerEnvironment("c"), "1")):
        options = options_for(environment.to_runner_api(None), coded)
        assert dict(options.items()) == {
            **{"beam:option:flag:v1": True, "beam:option:n:v1": number},
            **{"beam:option:some:v1": options["beam:option:some:v1"], "beam:option:x:v1": 1.5},
        }


def test_an_unknown_environment_is_refused_with_its_steps() -> None:
    pipeline = beam.Pipeline()
    pipeline | "Start" >> beam.Impulse() | "Look" >> beam.Map(print)
    proto = pipeline.to_runner_api(default_environment=DockerEnvironment("image"))
    for each in proto.components.environments.values():
        each.urn = "beam:env:odd:v1"
    with pytest.raises(PipelineRefusedError, match="Look: its environment, beam:env:odd:v1"):
        compile_pipeline(proto)
