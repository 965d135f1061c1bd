"""Read and write the files that say what is expected."""

import sys
from pathlib import Path
from typing import Any

from integration.validates_runner.ledger import Expectations, Verdict, collapse
from integration.validates_runner.suites import HERE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPECTATIONS = HERE / "expectations.toml"
EXPECTATIONS_PROCESS = HERE / "expectations_process.toml"
"""Tests that fail with SDK harnesses in processes, and pass, or fail otherwise, without."""
OWN_RUNNER = HERE / "own_runner.txt"
NO_PIPELINE = HERE / "no_pipeline.txt"


class ExpectationsError(ValueError):
    """The files contradict themselves, or are for another Beam."""


def load(beam_version: str, *, with_processes: bool = False) -> Expectations:
    """Load what is expected.

    Args:
        beam_version: of the suites.
        with_processes: user code runs in SDK harnesses beside the Spark workers.

    Raises:
        ExpectationsError: it is for another minor version of Beam, or a test is named twice.
    """
    content = tomllib.loads(EXPECTATIONS.read_text())
    if not beam_version.startswith(content["beam"] + "."):
        raise ExpectationsError(
            f"{EXPECTATIONS.name} is for Beam {content['beam']}, but {beam_version} is installed"
        )
    failing = content["failing"]
    if with_processes:
        failing = failing + tomllib.loads(EXPECTATIONS_PROCESS.read_text())["failing"]
    return Expectations(
        failing=_reasons(failing),
        vacuous=_reasons(content["vacuous"]),
        skipped=_reasons(content["skipped"]),
        own_runner=frozenset(OWN_RUNNER.read_text().split("\n")[:-1]),
        no_pipeline=frozenset(NO_PIPELINE.read_text().split("\n")[:-1]),
    )


def _reasons(groups: list[dict[str, Any]]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for group in groups:
        for test in group["tests"]:
            if test in reasons:
                raise ExpectationsError(f"{EXPECTATIONS.name} names {test} twice")
            reasons[test] = group["reason"]
    return reasons


def write_lists(verdicts: dict[str, Verdict]) -> None:
    """Write the lists of tests that do not drive the runner under test."""
    for verdict, path in ((Verdict.OWN_RUNNER, OWN_RUNNER), (Verdict.NO_PIPELINE, NO_PIPELINE)):
        _write(path, collapse(verdict, verdicts))


def _write(path: Path, entries: list[str]) -> None:
    path.write_text("".join(f"{entry}\n" for entry in entries))
