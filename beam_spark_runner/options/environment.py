"""The options that decide where user code runs.

The argument ``values`` of these functions has the options of ``read_options.EnvironmentOptions``
as its attributes.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any

from beam_spark_runner.core.environments import EnvironmentKind
from beam_spark_runner.core.errors import OptionsError
from beam_spark_runner.options.values import milliseconds, number

_LOGGER = logging.getLogger(__name__)
_ENVIRONMENTS: Mapping[str, EnvironmentKind] = {
    "EMBEDDED": "embedded",
    "EMBEDDED_PYTHON": "embedded",
    "BEAM:ENV:EMBEDDED_PYTHON:V1": "embedded",
    "PROCESS": "process",
    "BEAM:ENV:PROCESS:V1": "process",
    "DOCKER": "docker",
    "BEAM:ENV:DOCKER:V1": "docker",
    "EXTERNAL": "external",
    "BEAM:ENV:EXTERNAL:V1": "external",
    "LOOPBACK": "loopback",
    "BEAM:ENV:EMBEDDED_PYTHON_LOOPBACK:V1": "loopback",
}
_NOT_EMBEDDED = (
    "has no effect while user code runs in the Python workers; set --environment_type to PROCESS, "
    "DOCKER or EXTERNAL"
)
_MAX_HARNESSES = 100  # of each Python worker; each is a process
_OVERRIDES = re.compile(r'\s*\{\s*"beam:env:')


def environment_kind(values: Any) -> EnvironmentKind:
    """Read ``--environment_type``.

    Raises:
        OptionsError: The type is not supported, or conflicts with other options.
    """
    name = values.environment_type
    needs = _own_needs(values)
    kind = _ENVIRONMENTS.get((name or ("PROCESS" if needs else "EMBEDDED")).upper())
    if kind is None:
        raise OptionsError(
            "environment_type",
            f"{name} is not supported; use PROCESS, DOCKER, EXTERNAL or LOOPBACK, or omit the "
            "option: user code then runs in the Python workers, with the packages that are "
            "installed there",
        )
    if kind == "embedded" and needs:
        raise OptionsError(
            needs,
            "is not possible with --environment_type=EMBEDDED, which runs user code in Python "
            "workers that all pipelines share; leave --environment_type out: each worker then "
            "starts a process with what this pipeline needs",
        )
    if kind == "loopback" and needs:
        _LOGGER.warning(
            "--%s has no effect with --environment_type=LOOPBACK: this process runs user code",
            needs,
        )
    config = values.environment_config
    if config and (kind == "embedded" or not name) and not environment_overrides(values):
        reason = _NOT_EMBEDDED if kind == "embedded" else "has no effect; set --environment_type"
        raise OptionsError(
            "environment_config",
            f"{reason}, or use it to replace environments of external transforms: "
            '{"beam:env:docker:v1": {"environment_type": …}}',
        )
    return kind


def environment_overrides(values: Any) -> str:
    """Return the --environment_config if it replaces environments by URN; else ""."""
    config = values.environment_config or ""
    return config if _OVERRIDES.match(config) and not values.environment_type else ""


def _own_needs(values: Any) -> str | None:
    """Return an option that requires packages or files of this pipeline alone; None: none does."""
    for name in ("requirements_file", "setup_file", "extra_packages", "files_to_stage"):
        if getattr(values, name):
            return name
    # With cloudpickle, only registries are saved, whose entries pickled functions include.
    if values.save_main_session and values.pickle_library.startswith("dill"):
        return "save_main_session"
    return None


def sdk_worker_parallelism(values: Any, kind: EnvironmentKind) -> int:
    """Read the number of SDK harnesses for each Python worker; 0, the runner's choice, is one.

    Raises:
        OptionsError: The value is no whole number, or has no effect.
    """
    value = values.sdk_worker_parallelism
    harnesses = number("sdk_worker_parallelism", value, _MAX_HARNESSES)
    if harnesses != int(harnesses):
        raise OptionsError(
            "sdk_worker_parallelism", f"{value} is not a whole number of SDK harnesses"
        )
    if harnesses > 1 and kind == "embedded":
        raise OptionsError("sdk_worker_parallelism", _NOT_EMBEDDED)
    return max(1, int(harnesses))


def cache_s(values: Any, kind: EnvironmentKind) -> float:
    """Read ``--environment_cache_millis``, in seconds.

    With LOOPBACK it is 0, since the next job has its own worker pool.

    Raises:
        OptionsError: The value is no number of milliseconds.
    """
    cached_s = milliseconds("environment_cache_millis", values.environment_cache_millis)
    return 0.0 if kind == "loopback" else cached_s
