"""The default environment of a pipeline's steps, by its options."""

import json
import shlex
from collections.abc import Sequence
from typing import Any

from apache_beam.transforms import environments

from beam_spark_runner.core.environments import EnvironmentKind
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options.environment import environment_overrides
from beam_spark_runner.options.read_options import EnvironmentOptions


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
    portable: Any, config_text: str | None, artifacts: Sequence[Any]
) -> environments.Environment:
    if config_text:
        option = "environment_config"
        config = _json_object(config_text, "PROCESS", ("command", "env"), ignored=("os", "arch"))
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


def _docker(
    portable: Any, config_text: str | None, artifacts: Sequence[Any]
) -> environments.Environment:
    image = config_text or _option_of(portable, "docker_container_image")
    if image is not None and (not image.strip() or image.lstrip().startswith(("{", "-"))):
        raise OptionsError("environment_config", f"{image!r} is not the name of a container image")
    return environments.DockerEnvironment(
        image,  # None: Beam's own, of this Python and this Beam
        capabilities=environments.python_sdk_docker_capabilities(),
        artifacts=artifacts,
    )


def _option_of(portable: Any, name: str) -> str | None:
    value = portable.lookup_environment_option(name)
    if value is not None and not isinstance(value, str):
        raise OptionsError("environment_options", f"{name} has no value")
    return value


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


def _texts(name: str, texts: Any, of: tuple[type, ...] = (str,)) -> dict[str, str]:
    """Return a JSON object with all values as text; ``of`` are the types that values may have."""
    if texts is None:
        return {}
    if not isinstance(texts, dict):
        raise OptionsError(
            "environment_config", f'{name}: {texts!r} is not of the form {{"NAME": "VALUE"}}'
        )
    for key, value in texts.items():
        if not isinstance(value, of):
            raise OptionsError(
                "environment_config", f"{name}: {key} is {value!r}, which is not a string"
            )
    return {key: str(value) for key, value in texts.items()}


def _variables(text: str) -> dict[str, str]:
    pairs = [item.partition("=") for item in text.split(",")] if text else []
    for name, separator, _ in pairs:
        if not separator:
            raise OptionsError("environment_options", f"process_variables: {name!r} has no value")
    return {name: value for name, _, value in pairs}


def _external(
    portable: Any, config_text: str | None, artifacts: Sequence[Any]
) -> environments.Environment:
    address_or_json = config_text or _option_of(portable, "external_service_address")
    if not address_or_json:
        raise OptionsError(
            "environment_config", "EXTERNAL needs the address of a worker pool: HOST:PORT"
        )
    config: dict[str, Any] = {"url": address_or_json}
    if address_or_json.lstrip().startswith("{"):
        config = _json_object(address_or_json, "EXTERNAL", ("url", "params"))
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
