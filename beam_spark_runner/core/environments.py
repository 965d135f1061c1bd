"""Where user code may run."""

from typing import Literal

from beam_spark_runner.core import urns

EnvironmentKind = Literal["embedded", "process", "docker", "external", "loopback"]
"""In the Python workers; in a process of each worker; in a container of each worker; in harnesses
that a worker pool starts; in the client."""

ExecutorEnvironment = Literal["auto", "installed", "archive"]
"""The packages of Python workers: ``archive`` if Beam is missing there, else ``installed``; those
that are installed there; an archive of the client's."""

IN_PYTHON_WORKERS = frozenset({urns.ENVIRONMENT_DEFAULT, urns.ENVIRONMENT_EMBEDDED_PYTHON})
"""URNs of environments whose code runs in the Python workers."""

IN_SDK_HARNESSES = frozenset(
    {urns.ENVIRONMENT_PROCESS, urns.ENVIRONMENT_DOCKER, urns.ENVIRONMENT_EXTERNAL}
)
"""URNs of environments whose code runs in SDK harnesses, over the Fn API."""
