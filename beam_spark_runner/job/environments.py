"""Chooses the environments in which user code runs, by the options and the pipeline's proto."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms import environments

from beam_spark_runner.core import urns
from beam_spark_runner.core.environments import IN_PYTHON_WORKERS, EnvironmentKind
from beam_spark_runner.core.errors import InvalidPipelineError, OptionsError
from beam_spark_runner.options.environment import environment_overrides
from beam_spark_runner.options.reading import EnvironmentOptions
from beam_spark_runner.portable.payloads import parse


def default_environment(
    kind: EnvironmentKind, options: EnvironmentOptions, artifacts: Sequence[Any] = ()
) -> Any:
    """Return the default environment of a pipeline's steps: a Beam ``Environment``.

    Args:
        kind: Where user code runs.
        options: The options of the pipeline.
        artifacts: Beam's ArtifactInformation protos of the files that the environment depends on.
            ``embedded`` and ``loopback`` ignore them.

    Raises:
        OptionsError: --environment_config or --environment_options is invalid for this kind.
    """
    # A config that replaces environments by their URN does not describe this environment.
    config = None if environment_overrides(options) else options.environment_config
    match kind:
        case "embedded":
            return environments.EmbeddedPythonEnvironment.default()
        case "process":
            return _process(options, config, artifacts)
        case "docker":
            return _docker(options, config, artifacts)
        case "external":
            return _external(options, config, artifacts)
        case "loopback":
            return environments.PythonLoopbackEnvironment(
                capabilities=environments.python_sdk_capabilities()
            )


def _process(
    portable: Any, given: str | None, artifacts: Sequence[Any]
) -> environments.Environment:
    if given:
        option = "environment_config"
        config = _json_object(given, "PROCESS", ("command", "env"), ignored=("os", "arch"))
    else:
        option = "environment_options"
        variables = _option_of(portable, "process_variables")
        config = {
            "command": _option_of(portable, "process_command"),
            "env": None if variables is None else _variables(variables),
        }
    return environments.ProcessEnvironment(
        _command(option, config.get("command")),
        env=_texts("env", config.get("env"), of=(str, int, float)),
        capabilities=environments.python_sdk_capabilities(),
        artifacts=artifacts,
    )


def _docker(portable: Any, given: str | None, artifacts: Sequence[Any]) -> environments.Environment:
    image = given or _option_of(portable, "docker_container_image")
    if image is not None and (not image.strip() or image.lstrip().startswith(("{", "-"))):
        raise OptionsError("environment_config", f"{image!r} is not the name of a container image")
    return environments.DockerEnvironment(
        image,  # None: Beam's own, of this Python and this Beam
        capabilities=environments.python_sdk_docker_capabilities(),
        artifacts=artifacts,
    )


def _option_of(portable: Any, name: str) -> str | None:
    found = portable.lookup_environment_option(name)
    if found is not None and not isinstance(found, str):
        raise OptionsError("environment_options", f"{name} has no value")
    return found


def _json_object(
    text: str, kind: str, names: Sequence[str], ignored: Sequence[str] = ()
) -> dict[str, Any]:
    """Parse a JSON object of --environment_config.

    Args:
        text: The JSON.
        kind: The --environment_type, for errors.
        names: The keys that are allowed.
        ignored: Keys that are allowed, and have no effect.

    Raises:
        OptionsError: The text is not a JSON object, or has other keys.
    """
    try:
        config = json.loads(text)
    except ValueError as error:
        raise OptionsError("environment_config", f"{text!r} is not valid JSON: {error}") from error
    if not isinstance(config, dict):
        form = ", ".join(f'"{name}": …' for name in names)
        raise OptionsError("environment_config", f"{text!r} is not of the form {{{form}}}")
    unknown = sorted(config.keys() - {*names, *ignored})
    if unknown:
        raise OptionsError(
            "environment_config",
            f"{kind} has the keys {' and '.join(names)}, not {', '.join(unknown)}",
        )
    return config


def _command(option: str, command: Any) -> str:
    """Check that a command can be split into words, and return it; "" if none is given."""
    if command is None or command == "":
        return ""
    if not isinstance(command, str):
        raise OptionsError(option, f"command: {command!r} is not a string")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise OptionsError(option, f"command: {command!r} cannot be split: {error}") from error
    if not words:
        raise OptionsError(option, f"command: {command!r} is blank")
    return command


def _texts(name: str, given: Any, of: tuple[type, ...] = (str,)) -> dict[str, str]:
    """Return a JSON object with all values as text; ``of`` are the types that values may have."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise OptionsError(
            "environment_config", f'{name}: {given!r} is not of the form {{"NAME": "VALUE"}}'
        )
    for key, value in given.items():
        if not isinstance(value, of):
            raise OptionsError(
                "environment_config", f"{name}: {key} is {value!r}, which is not a string"
            )
    return {key: str(value) for key, value in given.items()}


def _variables(text: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in text.split(",")] if text else []
    for name, separator, _ in pairs:
        if not separator:
            raise OptionsError("environment_options", f"process_variables: {name!r} has no value")
    return {name: value for name, _, value in pairs}


def _external(
    portable: Any, config_text: str | None, artifacts: Sequence[Any]
) -> environments.Environment:
    given = config_text or _option_of(portable, "external_service_address")
    if not given:
        raise OptionsError(
            "environment_config", "EXTERNAL needs the address of a worker pool: HOST:PORT"
        )
    config: dict[str, Any] = {"url": given}
    if given.lstrip().startswith("{"):
        config = _json_object(given, "EXTERNAL", ("url", "params"))
    url = config.get("url")
    if not isinstance(url, str) or not url.strip():
        raise OptionsError(
            "environment_config", f"url: {url!r} is not the address of a worker pool"
        )
    return environments.ExternalEnvironment(
        url,
        params=_texts("params", config.get("params")),
        capabilities=environments.python_sdk_capabilities(),
        artifacts=artifacts,
    )


_MOST_NESTED = 10  # expansion services make one ANYOF, of environments that are none
_PREFERRED = (
    urns.ENVIRONMENT_EMBEDDED_PYTHON,
    urns.ENVIRONMENT_PROCESS,
    urns.ENVIRONMENT_EXTERNAL,
    urns.ENVIRONMENT_DOCKER,
)


def choose_environments(pipeline: beam_runner_api_pb2.Pipeline) -> None:
    """Replace each ANYOF environment, as of expansion services, by one of its alternatives.

    Args:
        pipeline: The proto, whose environments are changed.

    Raises:
        InvalidPipelineError: The payload of such an environment is invalid.
    """
    for id_, each in sorted(pipeline.components.environments.items()):
        each.CopyFrom(chosen_environment(each, id_))


def chosen_environment(environment: Any, id_: str) -> Any:
    """Return the environment that ``choose_environments`` puts in the place of one.

    Args:
        environment: The Environment proto.
        id_: The id of the environment, for errors.

    Raises:
        InvalidPipelineError: It is an ANYOF whose payload is invalid.
    """
    found = _alternatives(environment, f"the environment {id_}")
    for urn in _PREFERRED:
        for each in found:
            if each.urn == urn:
                return each
    return found[0] if found else environment


def _alternatives(environment: Any, where: str) -> list[Any]:
    """Return the alternatives of an ANYOF environment in order; those that are ANYOF are expanded.

    Args:
        environment: The Environment proto.
        where: The environment in words, for errors.

    Raises:
        InvalidPipelineError: A payload cannot be decoded, or ANYOF environments nest too deep.
    """
    found: list[Any] = []
    pending = [(environment, 0)]
    while pending:
        current, depth = pending.pop()
        if current.urn != urns.ENVIRONMENT_ANYOF:
            found.append(current)
            continue
        if depth == _MOST_NESTED:
            raise InvalidPipelineError(f"{current.urn} nests more than {_MOST_NESTED} deep", where)
        payload = current.payload and parse(
            beam_runner_api_pb2.AnyOfEnvironmentPayload, current.payload, where
        )
        parts = payload.environments if payload else ()
        pending.extend((each, depth + 1) for each in reversed(parts))
    return found


def keep_code_together(pipeline: beam_runner_api_pb2.Pipeline, *, apart: bool = False) -> None:
    """Replace embedded environments by PROCESS ones where code must not run in the Python workers.

    It must not if other code of the pipeline runs in SDK harnesses, since all rows then have the
    coders that SDKs use (``portable.wire``), nor if an environment has dependencies, since all
    pipelines share the workers.

    Args:
        pipeline: The proto, whose environments are changed.
        apart: Whether no code of this pipeline may run in the workers.
    """
    components = pipeline.components
    ids = {each.environment_id for each in components.transforms.values()} | {
        each.environment_id
        for each in components.windowing_strategies.values()
        if each.window_fn.urn not in urns.WINDOW_FNS
    }
    used = [components.environments[id_] for id_ in ids if id_ in components.environments]
    are_embedded = all(each.urn in IN_PYTHON_WORKERS for each in used)
    needs_files = any(each.dependencies for each in used)
    if are_embedded and not needs_files and not apart:
        return
    for each in components.environments.values():
        if each.urn in IN_PYTHON_WORKERS:
            each.urn = urns.ENVIRONMENT_PROCESS
            each.payload = beam_runner_api_pb2.ProcessPayload().SerializeToString()


def loopback_environments(
    pipeline: beam_runner_api_pb2.Pipeline,
) -> list[beam_runner_api_pb2.Environment]:
    """Return the LOOPBACK environments of a pipeline."""
    return [
        each
        for each in pipeline.components.environments.values()
        if each.urn == python_urns.EMBEDDED_PYTHON_LOOPBACK
    ]
