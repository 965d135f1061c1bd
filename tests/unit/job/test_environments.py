"""From options to the environment of a pipeline's steps."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import (
    AnyOfEnvironment,
    DockerEnvironment,
    EmbeddedPythonEnvironment,
    ExternalEnvironment,
    ProcessEnvironment,
    python_sdk_docker_capabilities,
)

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import (
    InvalidPipelineError,
    OptionsError,
    PipelineRefusedError,
)
from beam_spark_runner.job.compile import compile_pipeline
from beam_spark_runner.job.environments import (
    choose_environments,
    default_environment,
    keep_code_together,
)
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.options.reading import EnvironmentOptions
from beam_spark_runner.portable.sdk_options import options_for, options_json


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
def test_processes(flags: list[str], command: str, variables: dict[str, str]) -> None:
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
def test_containers(flags: list[str], image: str) -> None:
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
def test_worker_pools(flags: list[str], url: str, params: dict[str, str]) -> None:
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


def in_environments(**environments: Any) -> beam_runner_api_pb2.Pipeline:
    """A pipeline with a step in each."""
    pipeline = beam_runner_api_pb2.Pipeline()
    for name, environment in environments.items():
        found = environment.to_runner_api(None)
        pipeline.components.environments[name].CopyFrom(found)
        pipeline.components.transforms[name].environment_id = name
    return pipeline


def kinds(pipeline: beam_runner_api_pb2.Pipeline) -> dict[str, str]:
    environments = pipeline.components.environments
    return {name: environments[name].urn.split(":")[2] for name in environments}


def test_what_runs_in_the_workers_alone_stays_there() -> None:
    pipeline = in_environments(
        one=EmbeddedPythonEnvironment(), other=EmbeddedPythonEnvironment(resource_hints={"a": b"1"})
    )
    unused = DockerEnvironment("image").to_runner_api(None)
    pipeline.components.environments["unused"].CopyFrom(unused)
    keep_code_together(pipeline)
    assert kinds(pipeline) == {
        "one": "embedded_python",
        "other": "embedded_python",
        "unused": "docker",
    }


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
    pipeline = in_environments(theirs=AnyOfEnvironment(alternatives))
    choose_environments(pipeline)
    assert kinds(pipeline) == {"theirs": chosen}


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
    pipeline = beam_runner_api_pb2.Pipeline()
    pipeline.components.environments["theirs"].CopyFrom(nested(depth))
    with pytest.raises(InvalidPipelineError, match=r"^the environment theirs: .* than 10 deep"):
        choose_environments(pipeline)
    pipeline.components.environments["theirs"].CopyFrom(nested(10))
    choose_environments(pipeline)
    assert kinds(pipeline) == {"theirs": "process"}


def test_alternatives_that_cannot_be_decoded_are_refused() -> None:
    pipeline = beam_runner_api_pb2.Pipeline()
    theirs = pipeline.components.environments["theirs"]
    theirs.urn, theirs.payload = "beam:env:anyof:v1", b"\xff"
    with pytest.raises(InvalidPipelineError, match=r"^the environment theirs: .*decoded"):
        choose_environments(pipeline)


@pytest.mark.parametrize("other", [ProcessEnvironment("run"), ExternalEnvironment("host:1")])
def test_beside_sdk_harnesses_all_code_runs_in_some(other: Any) -> None:
    pipeline = in_environments(ours=EmbeddedPythonEnvironment(), theirs=other)
    theirs = pipeline.components.environments["theirs"].SerializeToString()
    keep_code_together(pipeline)
    ours = pipeline.components.environments["ours"]
    assert ours.urn == "beam:env:process:v1"
    assert beam_runner_api_pb2.ProcessPayload.FromString(ours.payload).command == ""
    assert pipeline.components.environments["theirs"].SerializeToString() == theirs


def test_code_that_needs_files_does_not_run_in_the_workers() -> None:
    pipeline = in_environments(ours=EmbeddedPythonEnvironment())
    pipeline.components.environments["ours"].dependencies.add(role_urn="r")
    keep_code_together(pipeline)
    assert kinds(pipeline) == {"ours": "process"}


def test_an_unknown_environment_is_refused_with_its_steps() -> None:
    pipeline = beam.Pipeline()
    pipeline | "Start" >> beam.Impulse() | "Look" >> beam.Map(print)
    proto = pipeline.to_runner_api(default_environment=DockerEnvironment("image"))
    for each in proto.components.environments.values():
        each.urn = "beam:env:odd:v1"
    with pytest.raises(PipelineRefusedError, match="Look: its environment, beam:env:odd:v1"):
        compile_pipeline(proto)


@pytest.mark.parametrize(
    ("window_fn", "kind"),
    [("beam:window_fn:pickled_python:v1", "process"), (urns.WINDOW_FN_FIXED, "embedded_python")],
)
def test_window_fns_of_users_are_code_too(window_fn: str, kind: str) -> None:
    pipeline = in_environments(steps=EmbeddedPythonEnvironment())
    theirs = DockerEnvironment("image").to_runner_api(None)
    pipeline.components.environments["theirs"].CopyFrom(theirs)
    strategy = pipeline.components.windowing_strategies["strategy"]
    strategy.environment_id, strategy.window_fn.urn = "theirs", window_fn
    keep_code_together(pipeline)
    assert kinds(pipeline) == {"steps": kind, "theirs": "docker"}


def test_apart_no_environment_is_of_the_workers_even_if_no_step_uses_it() -> None:
    pipeline = in_environments(steps=ProcessEnvironment("run"))
    unused = EmbeddedPythonEnvironment().to_runner_api(None)
    pipeline.components.environments["unused"].CopyFrom(unused)
    keep_code_together(pipeline, apart=True)
    assert kinds(pipeline) == {"steps": "process", "unused": "process"}
