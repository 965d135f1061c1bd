"""Where user code may run."""

from typing import Literal

EnvironmentKind = Literal["embedded", "process", "external", "loopback"]
"""In the Spark workers; in a process beside each; where a worker pool says; in the client."""

ExecutorEnvironment = Literal["auto", "installed", "archive"]
"""The packages of Spark workers: the client's where Beam is missing; theirs; the client's."""
