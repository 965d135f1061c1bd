"""Replaces the environments of a pipeline by those that --environment_config names."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.environments import DockerEnvironment

from beam_spark_runner.core import urns
from beam_spark_runner.core.environments import IN_PYTHON_WORKERS, IN_SDK_HARNESSES
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.core.ids import EnvironmentId
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.job.prepare.default_environment import default_environment
from beam_spark_runner.options.environment import environment_kind
from beam_spark_runner.options.read_options import EnvironmentOptions
from beam_spark_runner.portable.environment_facts import (
    changed_environments,
    python_version_of_beam,
)

_FORM = '{"beam:env:docker:v1": {"environment_type": "PROCESS", "environment_config": …}}'
_FIELDS = frozenset({"environment_type", "environment_config"})


class Override(NamedTuple):
    """The environment that replaces those of one URN."""

    environment: beam_runner_api_pb2.Environment
    is_default_of_python: bool  # it names no command or image, so that it runs Python's harness


Overrides = Mapping[str, Override]
"""The overrides by the URN of the environments that they replace."""


def read_overrides(config: str) -> Overrides:
    """Read an --environment_config that replaces environments by their URN.

    Args:
        config: A JSON object with URNs as keys, or "" for no overrides. Each value has an
            ``environment_type``, and may have an ``environment_config`` for that type.

    Raises:
        OptionsError: It is not of this form, or an environment is invalid.
    """
    if not config:
        return {}
    try:
        by_urn = json.loads(config)
    except ValueError as error:
        raise OptionsError(
            "environment_config", f"{config!r} is not valid JSON: {error}"
        ) from error
    if not isinstance(by_urn, dict):
        raise OptionsError("environment_config", f"{config!r} is not of the form {_FORM}")
    return {urn: _override(urn, value) for urn, value in by_urn.items()}


def _override(urn: str, value: Any) -> Override:
    if urn not in IN_SDK_HARNESSES | IN_PYTHON_WORKERS:
        known_urns = ", ".join(sorted(IN_SDK_HARNESSES | IN_PYTHON_WORKERS))
        raise OptionsError(
            "environment_config", f"{urn} is not the URN of an environment; these are {known_urns}"
        )
    if not isinstance(value, dict) or "environment_type" not in value or value.keys() - _FIELDS:
        raise OptionsError("environment_config", f"{urn}: {json.dumps(value)} is not as in {_FORM}")
    inner = value.get("environment_config")
    options = EnvironmentOptions.from_dictionary(
        {
            "environment_type": str(value["environment_type"]),
            "environment_config": inner
            if inner is None or isinstance(inner, str)
            else json.dumps(inner),
        }
    )
    try:
        kind = environment_kind(options)
        environment = default_environment(kind, options).to_runner_api(None)
    except OptionsError as error:
        raise OptionsError(error.option, f"{urn}: {error.problem}") from error
    if kind in ("embedded", "loopback"):
        raise OptionsError(
            "environment_config",
            f"{urn} can be replaced by PROCESS, DOCKER or EXTERNAL, not by "
            f"{value['environment_type']}",
        )
    return Override(environment, _is_default_of_python(environment))


def _is_default_of_python(environment: beam_runner_api_pb2.Environment) -> bool:
    match environment.urn:
        case urns.ENVIRONMENT_PROCESS:
            process = beam_runner_api_pb2.ProcessPayload.FromString(environment.payload)
            return not process.command
        case urns.ENVIRONMENT_DOCKER:
            docker = beam_runner_api_pb2.DockerPayload.FromString(environment.payload)
            return bool(docker.container_image == DockerEnvironment.default_docker_image())
        case _:
            return False


def override_environments(graph: Graph, overrides: Overrides) -> Graph:
    """Replace environments of a pipeline, but for their capabilities and dependencies.

    Args:
        graph: The graph before all passes.
        overrides: See ``read_overrides``.

    Raises:
        OptionsError: An environment of another SDK would be replaced by Python's SDK harness.
    """

    def override(id_: EnvironmentId, proto: beam_runner_api_pb2.Environment) -> None:
        replacement = overrides.get(proto.urn)
        if replacement is None:
            return
        if replacement.is_default_of_python and python_version_of_beam(proto) is None:
            raise OptionsError(
                "environment_config",
                f"{proto.urn} would be replaced by Python's SDK harness, since no command or image "
                f"is given, but the environment {id_} of the pipeline needs another SDK",
            )
        proto.urn, proto.payload = replacement.environment.urn, replacement.environment.payload

    return changed_environments(graph, override) if overrides else graph
