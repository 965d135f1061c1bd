"""Expansion services in separate processes.

``python -m integration.expansion_service --port=N …`` is Beam's ``expansion_service_main``, with
the same options; it offers the transforms of Beam's cross-language tests, too. The program that
Beam has for these takes no options, and names containers only.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

_ROOT = Path(__file__).parents[1]
_STARTS_WITHIN_S = 120.0
_LOOKS_EVERY_S = 0.1
IN_PROCESSES = (
    "--environment_type=PROCESS",
    # A variable that means nothing: so this is another environment than that of any pipeline.
    '--environment_config={"command": "", "env": {"MADE_BY": "an expansion service"}}',
)
"""Options with which steps of a Python expansion service run in separate SDK harnesses."""
IN_THE_SERVICE = ("--serve_loopback_worker",)
"""The same, in the service. A pipeline with ``--environment_type=LOOPBACK`` can use no other one:
Beam's service puts the pipeline's options over its own, and refuses a config with that type."""


def in_containers(image: str) -> tuple[str, ...]:
    """Return the options with which they run in containers of an image."""
    return "--environment_type=DOCKER", f"--environment_config={image}"


def free_port() -> int:
    """Return a port that nothing listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def listening(
    command: Sequence[str], port: int, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program that listens at a port of this machine, until the block ends.

    Args:
        command: the program, with its arguments.
        port: where it listens when it has started.
        environment: variables that it gets in addition to those of this process.

    Raises:
        RuntimeError: it has ended, or does not listen in time.
    """
    with subprocess.Popen(command, env={**os.environ, **environment}) as process:
        try:
            deadline = time.monotonic() + _STARTS_WITHIN_S
            while not _is_open(port):
                if process.poll() is not None:
                    raise RuntimeError(f"{command[0]} has ended with {process.returncode}")
                if time.monotonic() > deadline:
                    raise RuntimeError(f"nothing listens at {port} after {_STARTS_WITHIN_S:g} s")
                time.sleep(_LOOKS_EVERY_S)
            yield process
        finally:
            process.kill()


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@contextlib.contextmanager
def expansion_service(*flags: str) -> Iterator[int]:
    """Run the service of this module; yield its port.

    Args:
        flags: options of ``expansion_service_main``.
    """
    port = free_port()
    command = [sys.executable, "-m", "integration.expansion_service", f"--port={port}", *flags]
    modules = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    with listening(command, port, {"PYTHONPATH": modules}):
        yield port


def _serve() -> None:
    from apache_beam.runners.portability import (
        expansion_service_main,
        expansion_service_test,  # noqa: F401  (registers the transforms)
    )

    expansion_service_main.main(sys.argv)


if __name__ == "__main__":
    _serve()
