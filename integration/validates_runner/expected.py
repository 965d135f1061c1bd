"""Read and write the files that say what is expected."""

import sys
from pathlib import Path
from typing import Any

from integration.validates_runner.ledger import Expectations, Verdict, collapse
from integration.validates_runner.runners import (
    IN_PROCESS,
    IN_STATE_STORE,
    SPARK_DOCKER,
    SPARK_EMBEDDED,
    SPARK_LOOPBACK,
    SPARK_PROCESS,
)
from integration.validates_runner.suites import HERE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPECTATIONS = HERE / "expectations.toml"
DIFFERENCES = {
    IN_PROCESS: HERE / "expectations_in_process.toml",
    IN_STATE_STORE: HERE / "expectations_in_state_store.toml",
    SPARK_PROCESS: HERE / "expectations_process.toml",
    SPARK_LOOPBACK: HERE / "expectations_loopback.toml",
    SPARK_DOCKER: HERE / "expectations_docker.toml",
}
"""Of a runner: which tests fail on it and not otherwise, or the other way round."""
OWN_RUNNER = HERE / "own_runner.txt"
NO_PIPELINE = HERE / "no_pipeline.txt"


class ExpectationsError(ValueError):
    """The files contradict themselves, or are for another Beam."""


def load(beam_version: str, runner: str = SPARK_EMBEDDED) -> Expectations:
    """Load what is expected.

    Args:
        beam_version: of the suites.
        runner: of ``runners.RUNNERS``.

    Raises:
        ExpectationsError: it is for another minor version of Beam, or a test is named twice.
    """
    content = tomllib.loads(EXPECTATIONS.read_text())
    if not beam_version.startswith(content["beam"] + "."):
        raise ExpectationsError(
            f"{EXPECTATIONS.name} is for Beam {content['beam']}, but {beam_version} is installed"
        )
    failing = reasons_of(content["failing"], EXPECTATIONS)
    vacuous = reasons_of(content["vacuous"], EXPECTATIONS)
    passing: dict[str, str] = {}
    varying = reasons_of(content["varying"], EXPECTATIONS)
    if runner in DIFFERENCES:
        path = DIFFERENCES[runner]
        differences = tomllib.loads(path.read_text())
        passing = reasons_of(differences["passing"], path)
        for test in passing:
            if failing.pop(test, None) is None and varying.pop(test, None) is None:
                raise ExpectationsError(f"{test} passes on {runner}, but is not said to fail")
        varying |= reasons_of(differences.get("varying", []), path)
        for test in varying:
            failing.pop(test, None)
        for test, reason in reasons_of(differences["failing"], path).items():
            if test in failing:
                raise ExpectationsError(f"{test} fails on all runners, not on {runner} alone")
            failing[test] = reason
            vacuous.pop(test, None)
    return Expectations(
        failing=failing,
        vacuous=vacuous,
        passes_on={} if runner in DIFFERENCES else passes_on(content["failing"]),
        skipped=reasons_of(content["skipped"], EXPECTATIONS),
        own_runner=frozenset(OWN_RUNNER.read_text().split("\n")[:-1]),
        no_pipeline=frozenset(NO_PIPELINE.read_text().split("\n")[:-1]),
        passing=passing,
        varying=varying,
    )


def reasons_of(groups: list[dict[str, Any]], path: Path) -> dict[str, str]:
    """Return the reason for each test of the groups of a file.

    Raises:
        ExpectationsError: a test is named twice.
    """
    reasons: dict[str, str] = {}
    for group in groups:
        for test in group["tests"]:
            if test in reasons:
                raise ExpectationsError(f"{path.name} names {test} twice")
            reasons[test] = group["reason"]
    return reasons


def passes_on(groups: list[dict[str, Any]]) -> dict[str, str]:
    """Return the runner on which failing tests pass, where their groups name one."""
    return {
        test: group["passes_on"]
        for group in groups
        if "passes_on" in group
        for test in group["tests"]
    }


def write_lists(verdicts: dict[str, Verdict]) -> None:
    """Write the lists of tests that do not drive the runner under test."""
    for verdict, path in ((Verdict.OWN_RUNNER, OWN_RUNNER), (Verdict.NO_PIPELINE, NO_PIPELINE)):
        _write(path, collapse(verdict, verdicts))


def _write(path: Path, entries: list[str]) -> None:
    path.write_text("".join(f"{entry}\n" for entry in entries))
