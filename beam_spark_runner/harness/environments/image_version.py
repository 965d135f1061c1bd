"""Finds the version of Beam in a container image."""

import functools

from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.harness.environments.docker import ask, owner_label

_PROGRAM = "from importlib.metadata import version; print(version('apache-beam'))"


@functools.lru_cache(maxsize=64)
def beam_version(executable: str, image: str) -> str | None:
    """Run a container of an image that is on this machine; return the version of Beam in it.

    Args:
        executable: docker, or a program that takes the same arguments.
        image: The image of a Python SDK harness.

    Returns:
        The version; None if the image has no Python or Beam, or the engine does not answer.
    """
    options = ("--rm", "--pull=never", "--network=none", "--entrypoint=python", owner_label())
    try:
        answer = ask(executable, "run", *options, image, "-c", _PROGRAM)
    except EnvironmentStartError:
        return None
    return (answer.stdout.strip() or None) if answer.returncode == 0 else None
