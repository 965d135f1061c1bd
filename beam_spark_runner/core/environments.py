"""Where user code may run."""

from typing import Literal

from beam_spark_runner.core import urns

EnvironmentKind = Literal["embedded", "process", "docker", "external", "loopback"]
"""In the Python workers; in a process beside each; in a container beside each; where a worker pool
says; in the client."""

ExecutorEnvironment = Literal["auto", "installed", "archive"]
"""The packages of Python workers: the client's where Beam is missing; theirs; the client's."""

IN_SPARK_WORKERS = frozenset({urns.ENVIRONMENT_DEFAULT, urns.ENVIRONMENT_EMBEDDED_PYTHON})
"""URNs of environments whose code runs there."""

IN_SDK_HARNESSES = frozenset(
    {urns.ENVIRONMENT_PROCESS, urns.ENVIRONMENT_DOCKER, urns.ENVIRONMENT_EXTERNAL}
)
"""URNs of those whose code runs outside of the Python worker, over the Fn API."""
