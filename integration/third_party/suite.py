"""Run one project's tests on one runner, in processes of its environment."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from integration.third_party.projects import Project, Source
from integration.validates_runner.run import (
    Result,
    pytest_command,
    run_to_the_end,
    with_this_project,
)

_TEST_TIMEOUT_S = 170
"""Those of TensorFlow take long where the machine does other work, too."""


def run_project(
    project: Project,
    python: Path,
    folder: Path,
    runner: str,
    log: Path,
    *,
    tests: Sequence[str] = (),
    only: str | None = None,
    known: Mapping[str, Result] = MappingProxyType({}),
) -> dict[str, Result]:
    """Run a project's tests; what ``log`` already has is not run again.

    Args:
        project: Whose tests they are.
        python: The interpreter of its environment.
        folder: Where its paths of tests are.
        runner: Of ``runners.RUNNERS``.
        log: Lines of JSON, written as tests begin and end.
        tests: Ids of those to run; none: all.
        only: pytest's ``-k``.
        known: Results that need no run.

    Raises:
        RuntimeError: pytest itself does not work.
    """
    command = pytest_command(python, folder, runner, log, timeout_s=_TEST_TIMEOUT_S)
    command.append("--conformance-remembers")
    command += [f"--conformance-in-place-of={each}" for each in project.in_place_of]
    for plugin in project.plugins:
        command += ["-p", plugin]
    command += [f"--ignore={folder / path}" for path in project.left_out]
    if chosen := " and ".join(f"({each})" for each in (project.chosen, only) if each):
        command += ["-k", chosen]
    command += [str(folder / path) for path in tests or project.targets]
    return run_to_the_end(command, _environment(project, python, folder), log, known=known)


def _environment(project: Project, python: Path, folder: Path) -> dict[str, str]:
    """Return variables with which Spark's workers, too, are of the project's environment."""
    environment = with_this_project(
        {
            **os.environ,
            "PATH": os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)]),
            "VIRTUAL_ENV": str(python.parents[1]),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
            "TF_CPP_MIN_LOG_LEVEL": "2",  # TensorFlow says what it finds on each start
        }
    )
    if project.source is not Source.WHEEL:
        # Where workers find the modules of tests. Another project's may be called ``tests``, too.
        environment["PYTHONPATH"] = f"{folder}{os.pathsep}{environment['PYTHONPATH']}"
    return environment
