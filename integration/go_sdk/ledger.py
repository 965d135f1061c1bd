"""What is expected of Go's tests, and what differs from it. Pure but for ``load``."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from integration.go_sdk.run import Outcome, Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPECTATIONS = Path(__file__).with_name("expectations.toml")
_EXPLAINED = {
    "failing": Verdict.FAILING,
    "unproven": Verdict.UNPROVEN,
    "skipped": Verdict.SKIPPED,
    "no_pipeline": Verdict.NO_PIPELINE,
}


class ExpectationsError(ValueError):
    """The file contradicts itself, or is for another Beam."""


def load(beam_version: str, path: Path = EXPECTATIONS) -> dict[str, Verdict]:
    """Return the tests that do not pass soundly: ``package/Test`` by name.

    Raises:
        ExpectationsError: it is for another minor version of Beam, or a test is named twice.
    """
    content = tomllib.loads(path.read_text())
    if not beam_version.startswith(content["beam"] + "."):
        raise ExpectationsError(
            f"{path.name} is for Beam {content['beam']}, but {beam_version} is tested"
        )
    expected: dict[str, Verdict] = {}
    for kind, verdict in _EXPLAINED.items():
        for group in content.get(kind, ()):
            if not group["reason"]:
                raise ExpectationsError(f"{path.name} has a group without a reason")
            for test in group["tests"]:
                if test in expected:
                    raise ExpectationsError(f"{path.name} names {test} twice")
                expected[test] = verdict
    return expected


def slow(path: Path) -> dict[str, float]:
    """Return the seconds that tests take whose time limit is longer than that of others."""
    groups = tomllib.loads(path.read_text()).get("slow", ())
    return {test: float(group["seconds"]) for group in groups for test in group["tests"]}


def surprises(
    outcomes: Mapping[str, Outcome], expected: Mapping[str, Verdict], *, is_whole: bool
) -> Iterator[str]:
    """Yield a line for whatever differs from what is expected.

    Args:
        outcomes: by test.
        expected: see ``load``; what is not there is expected to pass soundly.
        is_whole: all tests ran, so an expectation of a test that is not among them is stale.
    """
    for test, outcome in sorted(outcomes.items()):
        wanted = expected.get(test, Verdict.SOUND)
        if outcome.verdict is not wanted:
            why = f": {outcome.why}" if outcome.why else ""
            yield f"{test}: {outcome.verdict.value}, expected {wanted.value}{why}"
    if is_whole:
        for test in sorted(expected.keys() - outcomes.keys()):
            yield f"{test}: expected to be {expected[test].value}, but there is no such test"
