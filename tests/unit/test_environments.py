"""From options to the environment of a pipeline's steps."""

from typing import Any

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.harness.sdk_workers import options_json
from beam_spark_runner.job.environments import default_environment
from beam_spark_runner.options import RunnerConfig


def environment(*flags: str) -> Any:
    options = PipelineOptions(list(flags))
    return default_environment(
        RunnerConfig.from_options(options).environment, options
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
def test_processes(flags: list[str], command: str, variables: dict[str, str]) -> None:
    found = environment("--environment_type=PROCESS", *flags)
    payload = beam_runner_api_pb2.ProcessPayload.FromString(found.payload)
    assert found.urn == "beam:env:process:v1"
    assert (payload.command, dict(payload.env)) == (command, variables)
    assert found.capabilities
    assert not found.dependencies


@pytest.mark.parametrize(
    ("flags", "url", "params"),
    [
        (["--environment_config=host:1"], "host:1", {}),
        (["--environment_options=external_service_address=host:1"], "host:1", {}),
        (['--environment_config={"url": "host:1", "params": {"a": "b"}}'], "host:1", {"a": "b"}),
    ],
)
def test_worker_pools(flags: list[str], url: str, params: dict[str, str]) -> None:
    found = environment("--environment_type=EXTERNAL", *flags)
    payload = beam_runner_api_pb2.ExternalPayload.FromString(found.payload)
    assert found.urn == "beam:env:external:v1"
    assert (payload.endpoint.url, dict(payload.params)) == (url, params)


@pytest.mark.parametrize(
    "flags",
    [
        ["--environment_type=PROCESS", "--environment_config=run"],
        ["--environment_type=PROCESS", "--environment_config=[1]"],
        ["--environment_type=PROCESS", '--environment_config={"comand": "x"}'],
        ["--environment_type=PROCESS", '--environment_config={"env": "A=1"}'],
        [
            "--environment_type=PROCESS",
            "--environment_options=process_command=run",
            "--environment_options=process_variables=A",
        ],
        ["--environment_type=EXTERNAL"],
        ["--environment_type=EXTERNAL", '--environment_config={"params": {}}'],
        ["--environment_type=EXTERNAL", '--environment_config={"url": "x", "params": ["a"]}'],
    ],
)
def test_what_is_wrong_names_its_option(flags: list[str]) -> None:
    with pytest.raises(OptionsError, match="--environment_"):
        environment(*flags)


def test_options_travel_as_sdks_read_them() -> None:
    given = {"n": 1, "flag": True, "some": ["a"], "none": None, "object": object(), "x": 1.5}
    assert options_json(given) == (
        '{"beam:option:flag:v1": true, "beam:option:n:v1": "1", "beam:option:some:v1": ["a"], '
        '"beam:option:x:v1": 1.5}'
    )
