"""Judge results and hold them against what is expected. Pure: results in, verdicts out."""

import fnmatch
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from integration.validates_runner.run import Result


class Verdict(Enum):
    """What a test says about the runner that it ran on."""

    SOUND = "sound"
    VACUOUS = "vacuous"
    OWN_RUNNER = "own runner"
    NO_PIPELINE = "no pipeline"
    FAILING = "failing"
    SKIPPED = "skipped"


def judge(results: Mapping[str, Result], nothing: Mapping[str, Result]) -> dict[str, Verdict]:
    """Judge each test.

    Args:
        results: on the runner that is measured.
        nothing: of the same suite on ``DoNothingRunner``.
    """
    return {test: _judge(result, nothing.get(test)) for test, result in results.items()}


def _judge(result: Result, nothing: Result | None) -> Verdict:
    if result.outcome == "failed":
        return Verdict.FAILING
    if result.outcome == "skipped":
        return Verdict.SKIPPED
    if not result.drives_runner:
        return Verdict.OWN_RUNNER if result.other_runners else Verdict.NO_PIPELINE
    # Without a run on DoNothingRunner nothing is known in the test's favour.
    if nothing is None or nothing.outcome != "failed":
        return Verdict.VACUOUS
    return Verdict.SOUND


def settled(nothing: Mapping[str, Result]) -> dict[str, Result]:
    """Return the results that are the same on every runner.

    Args:
        nothing: of a suite on ``DoNothingRunner``.

    Returns:
        Tests that passed or skipped themselves, and gave it no pipeline.
    """
    return {
        test: result
        for test, result in nothing.items()
        if result.outcome != "failed" and not result.drives_runner
    }


def presumed(results: Mapping[str, Result], expected: "Expectations") -> dict[str, Result]:
    """Return what tests would do on ``DoNothingRunner``, going by the ledger.

    Whether a test notices that nothing runs is a fact about that test in a version of Beam, not
    about the runner that is measured: a complete run of the suites establishes and checks it.

    Args:
        results: on the runner that is measured.
        expected: names the tests that pass on ``DoNothingRunner``, too.
    """
    passed, failed = Result(outcome="passed"), Result(outcome="failed")
    return {test: passed if test in expected.vacuous else failed for test in results}


def count(verdicts: Iterable[Verdict]) -> Counter[Verdict]:
    """Count verdicts."""
    return Counter(verdicts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What is known of the tests. ``…`` in all: a test's id, its class, file or folder."""

    failing: Mapping[str, str]  # test -> reason
    vacuous: Mapping[str, str]  # test -> reason
    passes_on: Mapping[str, str]  # failing test -> runner on which it passes all the same
    skipped: Mapping[str, str]  # pattern, as of ``fnmatch`` -> reason
    own_runner: frozenset[str]  # tests, or all passes of a class or file
    no_pipeline: frozenset[str]  # the same
    passing: Mapping[str, str] = field(default_factory=dict)  # test -> why it passes here alone
    varying: Mapping[str, str] = field(default_factory=dict)  # test -> why it sometimes fails


def surprises(
    results: Mapping[str, Result],
    verdicts: Mapping[str, Verdict],
    expected: Expectations,
    *,
    is_whole: bool,
) -> Iterator[str]:
    """Yield a line for whatever differs from what is expected.

    Args:
        results: on the runner that is measured, of all suites that ran.
        verdicts: of the same tests.
        expected: for all suites.
        is_whole: all suites ran, so an expectation of a test that is not among them is stale.
    """
    used: set[str] = set()
    for test, verdict in sorted(verdicts.items()):
        if test in expected.varying and verdict in (Verdict.SOUND, Verdict.FAILING):
            continue
        if test in expected.passing and verdict is Verdict.SOUND:
            continue  # entries of whole classes are about passes elsewhere
        entry = _entry(test, verdict, expected)
        if verdict is not Verdict.SOUND and entry is None:
            said = results[test].message
            yield f"{test}: {verdict.value}, not expected" + (f": {said}" if said else "")
        if entry is not None:
            used.add(entry)
        for other in _other_entries(test, verdict, expected):
            used.add(other)
            yield f"{test}: {verdict.value}, but listed otherwise"
    if is_whole:
        known = (
            *expected.failing,
            *expected.vacuous,
            *expected.skipped,
            *expected.own_runner,
            *expected.no_pipeline,
        )
        for entry in sorted(set(known) - used):
            yield f"{entry}: expected, but there is no such test"


def surprises_elsewhere(
    results: Mapping[str, Result], verdicts: Mapping[str, Verdict], expected: Expectations
) -> Iterator[str]:
    """Yield a line for each test without a sound pass on the runner where it is said to pass.

    Args:
        results: of failing tests on the runners of ``expected.passes_on``.
        verdicts: of the same tests.
        expected: for all suites.
    """
    for test, verdict in sorted(verdicts.items()):
        if verdict is not Verdict.SOUND:
            yield (
                f"{test}: {verdict.value} on {expected.passes_on[test]}, where it is said to "
                f"pass: {results[test].message}"
            )


def _entry(test: str, verdict: Verdict, expected: Expectations) -> str | None:
    """Return the entry that expects this verdict."""
    match verdict:
        case Verdict.FAILING:
            return test if test in expected.failing else None
        case Verdict.VACUOUS:
            return test if test in expected.vacuous else None
        case Verdict.SKIPPED:
            matches = (each for each in expected.skipped if fnmatch.fnmatchcase(test, each))
            return next(matches, None)
        case Verdict.OWN_RUNNER:
            return next((each for each in _scopes(test) if each in expected.own_runner), None)
        case Verdict.NO_PIPELINE:
            return next((each for each in _scopes(test) if each in expected.no_pipeline), None)
        case Verdict.SOUND:
            return None


def _other_entries(test: str, verdict: Verdict, expected: Expectations) -> Iterator[str]:
    """Yield entries that expect another verdict of a test."""
    if verdict is not Verdict.FAILING and test in expected.failing:
        yield test
    if verdict is not Verdict.VACUOUS and test in expected.vacuous:
        yield test
    if verdict in (Verdict.FAILING, Verdict.SKIPPED):
        return  # entries of whole classes are about their passes
    for scope in _scopes(test):
        if verdict is not Verdict.OWN_RUNNER and scope in expected.own_runner:
            yield scope
        if verdict is not Verdict.NO_PIPELINE and scope in expected.no_pipeline:
            yield scope


def _scopes(test: str) -> Iterator[str]:
    """Yield a test's id, its class and its file: ``a/b.py::C::t``, ``a/b.py::C``, ``a/b.py``."""
    yield test
    while "::" in test:
        test = test.rpartition("::")[0]
        yield test


def collapse(wanted: Verdict, verdicts: Mapping[str, Verdict]) -> list[str]:
    """List the tests with a verdict, by class or file where all that pass there have it."""
    passes = {
        test: verdict
        for test, verdict in verdicts.items()
        if verdict not in (Verdict.FAILING, Verdict.SKIPPED)
    }
    mixed = {
        scope
        for test, verdict in passes.items()
        if verdict is not wanted
        for scope in _scopes(test)
    }
    entries = set()
    for test, verdict in passes.items():
        if verdict is wanted:
            entries.add([scope for scope in _scopes(test) if scope not in mixed][-1])
    return sorted(entries)
