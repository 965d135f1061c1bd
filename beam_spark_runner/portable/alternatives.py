"""Chooses one of the alternatives of an ANYOF environment, as expansion services make it."""

from collections.abc import Mapping
from typing import Any

from apache_beam.portability.api import beam_runner_api_pb2

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.portable.payloads import parse

Environments = Mapping[str, beam_runner_api_pb2.Environment]
_MAX_NESTED = 10  # expansion services make one ANYOF, of environments that are none
_PREFERRED = (
    urns.ENVIRONMENT_EMBEDDED_PYTHON,
    urns.ENVIRONMENT_PROCESS,
    urns.ENVIRONMENT_EXTERNAL,
    urns.ENVIRONMENT_DOCKER,
)


def chosen_environments(components: beam_runner_api_pb2.Components) -> Environments:
    """Return the environments of a pipeline by id, each ANYOF replaced by an alternative.

    Raises:
        InvalidPipelineError: The payload of an ANYOF environment is invalid.
    """
    return {
        id_: chosen_environment(environment, id_)
        for id_, environment in sorted(components.environments.items())
    }


def chosen_environment(environment: Any, id_: str) -> Any:
    """Return an environment, or the alternative that takes the place of one that is ANYOF.

    Args:
        environment: The Environment proto.
        id_: The id of the environment, for errors.

    Raises:
        InvalidPipelineError: It is an ANYOF whose payload is invalid.
    """
    alternatives = _alternatives(environment, f"the environment {id_}")
    for urn in _PREFERRED:
        for alternative in alternatives:
            if alternative.urn == urn:
                return alternative
    return alternatives[0] if alternatives else environment


def _alternatives(environment: Any, where: str) -> list[Any]:
    """Return the alternatives of an ANYOF environment in order; those that are ANYOF are expanded.

    Args:
        environment: The Environment proto.
        where: The environment in words, for errors.

    Raises:
        InvalidPipelineError: A payload cannot be decoded, or ANYOF environments nest too deep.
    """
    alternatives: list[Any] = []
    pending = [(environment, 0)]
    while pending:
        current, depth = pending.pop()
        if current.urn != urns.ENVIRONMENT_ANYOF:
            alternatives.append(current)
            continue
        if depth == _MAX_NESTED:
            raise InvalidPipelineError(f"{current.urn} nests more than {_MAX_NESTED} deep", where)
        payload = current.payload and parse(
            beam_runner_api_pb2.AnyOfEnvironmentPayload, current.payload, where
        )
        parts = payload.environments if payload else ()
        pending.extend((part, depth + 1) for part in reversed(parts))
    return alternatives
