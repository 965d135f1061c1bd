"""How results are judged, and held against what is expected."""

import dataclasses
from collections.abc import Mapping

import apache_beam
import pytest

from integration.validates_runner import expected, table
from integration.validates_runner.ledger import (
    Expectations,
    Verdict,
    collapse,
    judge,
    presumed,
    settled,
    surprises,
    surprises_elsewhere,
)
from integration.validates_runner.run import Result

PASS = Result(outcome="passed", drives_runner=True)
FAIL = Result(outcome="failed", message="boom", drives_runner=True)
SKIP = Result(outcome="skipped", message="no cloud")
APART = Result(outcome="passed")
OTHER = Result(outcome="passed", other_runners=("FnApiRunner",))
TEST = "apache_beam/a_test.py::C::test"


@pytest.mark.parametrize(
    ("result", "on_nothing", "verdict"),
    [
        pytest.param(PASS, FAIL, Verdict.SOUND, id="it fails when nothing runs"),
        pytest.param(PASS, PASS, Verdict.VACUOUS, id="it passes when nothing runs"),
        pytest.param(PASS, None, Verdict.VACUOUS, id="nobody knows"),
        pytest.param(PASS, SKIP, Verdict.VACUOUS, id="it is skipped when nothing runs"),
        pytest.param(APART, APART, Verdict.NO_PIPELINE, id="no pipeline"),
        pytest.param(OTHER, OTHER, Verdict.OWN_RUNNER, id="a runner of its own"),
        pytest.param(FAIL, FAIL, Verdict.FAILING, id="fails"),
        pytest.param(SKIP, SKIP, Verdict.SKIPPED, id="skipped"),
    ],
)
def test_verdicts(result: Result, on_nothing: Result | None, verdict: Verdict) -> None:
    nothing = {} if on_nothing is None else {TEST: on_nothing}
    assert judge({TEST: result}, nothing) == {TEST: verdict}


def expectations(
    failing: Mapping[str, str] | None = None,
    vacuous: Mapping[str, str] | None = None,
    skipped: Mapping[str, str] | None = None,
    own_runner: frozenset[str] = frozenset(),
    no_pipeline: frozenset[str] = frozenset(),
) -> Expectations:
    return Expectations(
        failing=failing or {},
        vacuous=vacuous or {},
        passes_on={TEST: "one process"},
        skipped=skipped or {},
        own_runner=own_runner,
        no_pipeline=no_pipeline,
    )


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        pytest.param(Verdict.SOUND, expectations(), id="sound"),
        pytest.param(Verdict.FAILING, expectations({TEST: "why"}), id="failing"),
        pytest.param(Verdict.VACUOUS, expectations(vacuous={TEST: "why"}), id="vacuous"),
        pytest.param(
            Verdict.SKIPPED, expectations(skipped={"apache_beam/a_*": "why"}), id="skipped"
        ),
        pytest.param(
            Verdict.NO_PIPELINE,
            expectations(no_pipeline=frozenset({"apache_beam/a_test.py"})),
            id="a file without pipelines",
        ),
        pytest.param(
            Verdict.OWN_RUNNER,
            expectations(own_runner=frozenset({"apache_beam/a_test.py::C"})),
            id="a class with its own runner",
        ),
        pytest.param(
            Verdict.FAILING,
            expectations({TEST: "why"}, no_pipeline=frozenset({"apache_beam/a_test.py"})),
            id="a failure among tests without pipelines",
        ),
    ],
)
def test_what_is_expected_is_no_surprise(verdict: Verdict, expected: Expectations) -> None:
    assert list(surprises({TEST: FAIL}, {TEST: verdict}, expected, is_whole=False)) == []


@pytest.mark.parametrize(
    ("verdict", "expected", "line"),
    [
        pytest.param(Verdict.FAILING, expectations(), "failing, not expected: boom", id="it fails"),
        pytest.param(Verdict.SKIPPED, expectations(), "skipped, not expected: boom", id="skipped"),
        pytest.param(
            Verdict.VACUOUS, expectations(), "vacuous, not expected: boom", id="a vacuous pass"
        ),
        pytest.param(
            Verdict.SOUND,
            expectations({TEST: "why"}),
            "sound, but listed otherwise",
            id="it passes though it should fail",
        ),
        pytest.param(
            Verdict.SOUND,
            expectations(vacuous={TEST: "why"}),
            "sound, but listed otherwise",
            id="it is no longer vacuous",
        ),
        pytest.param(
            Verdict.SOUND,
            expectations(no_pipeline=frozenset({"apache_beam/a_test.py"})),
            "sound, but listed otherwise",
            id="it drives a pipeline after all",
        ),
    ],
)
def test_surprises(verdict: Verdict, expected: Expectations, line: str) -> None:
    found = list(surprises({TEST: FAIL}, {TEST: verdict}, expected, is_whole=False))
    assert found == [f"{TEST}: {line}"]


@pytest.mark.parametrize(
    ("verdict", "lines"),
    [
        (Verdict.SOUND, []),
        (Verdict.FAILING, [f"{TEST}: failing, not expected: boom"]),
        (Verdict.VACUOUS, [f"{TEST}: vacuous, not expected: boom"]),
    ],
)
def test_what_passes_on_one_runner_alone(verdict: Verdict, lines: list[str]) -> None:
    """On the others, no pass of its file runs a pipeline."""
    of_file = expectations(no_pipeline=frozenset({"apache_beam/a_test.py"}))
    expected = dataclasses.replace(of_file, passing={TEST: "why"})
    assert list(surprises({TEST: FAIL}, {TEST: verdict}, expected, is_whole=False))[:1] == lines


@pytest.mark.parametrize(
    ("verdict", "lines"),
    [
        (Verdict.SOUND, []),
        (Verdict.FAILING, []),
        (Verdict.VACUOUS, [f"{TEST}: vacuous, not expected: boom"]),
    ],
)
def test_what_sometimes_fails_does_not_pass_where_nothing_runs(
    verdict: Verdict, lines: list[str]
) -> None:
    expected = dataclasses.replace(expectations(), varying={TEST: "why"})
    assert list(surprises({TEST: FAIL}, {TEST: verdict}, expected, is_whole=False)) == lines


def test_an_expectation_of_no_test_is_stale_once_all_suites_ran() -> None:
    expected = expectations({"apache_beam/gone_test.py::test": "why"})
    verdicts = {TEST: Verdict.SOUND}
    assert list(surprises({TEST: PASS}, verdicts, expected, is_whole=False)) == []
    (line,) = surprises({TEST: PASS}, verdicts, expected, is_whole=True)
    assert line == "apache_beam/gone_test.py::test: expected, but there is no such test"


@pytest.mark.parametrize(
    ("verdict", "lines"),
    [
        (Verdict.SOUND, []),
        (Verdict.VACUOUS, [f"{TEST}: vacuous on one process, where it is said to pass: boom"]),
        (Verdict.FAILING, [f"{TEST}: failing on one process, where it is said to pass: boom"]),
    ],
)
def test_who_is_said_to_pass_elsewhere_has_to(verdict: Verdict, lines: list[str]) -> None:
    assert list(surprises_elsewhere({TEST: FAIL}, {TEST: verdict}, expectations())) == lines


def test_the_ledger_says_which_passes_count_where_nothing_else_was_run() -> None:
    results = {"listed": PASS, "other": PASS, "apart": APART}
    known = expectations(vacuous={"listed": "looks at nothing"})
    assert judge(results, presumed(results, known)) == {
        "listed": Verdict.VACUOUS,
        "other": Verdict.SOUND,
        "apart": Verdict.NO_PIPELINE,
    }


def test_only_what_asks_a_runner_is_run_on_others() -> None:
    nothing = {"pass": PASS, "fail": FAIL, "skip": SKIP, "apart": APART, "other": OTHER}
    nothing["broken"] = Result(outcome="failed", message="before any pipeline")
    assert list(settled(nothing)) == ["skip", "apart", "other"]


def test_the_table_counts_what_passes_in_one_process_next_to_the_runner_measured() -> None:
    measured = {"a": Verdict.SOUND, "b": Verdict.FAILING, "c": Verdict.FAILING}
    peer = {"a": Verdict.SOUND, "b": Verdict.SOUND, "c": Verdict.VACUOUS}
    row = ("io", [measured, peer], {"b": Verdict.SOUND, "c": Verdict.FAILING})
    head, _, line = table.render(["ours", "peer"], [row]).splitlines()
    assert head.endswith(
        "| ours: sound / vacuous / failing | of these pass in one process "
        "| peer: sound / vacuous / failing |"
    )
    assert line == "| io | 3 | 0 | 0 | 0 | 1 / 0 / 2 | 1 | 2 / 1 / 0 |"
    *_, line = table.render(
        ["ours", "peer"], [("PortableRunnerTest", [measured, None], {})]
    ).splitlines()
    assert line == "| PortableRunnerTest | 3 | 0 | 0 | 0 | 1 / 0 / 2 | 0 | has no job service |"


def test_lists_name_whole_files_and_classes_where_all_passes_agree() -> None:
    verdicts = {
        "a.py::A::one": Verdict.NO_PIPELINE,
        "a.py::A::two": Verdict.NO_PIPELINE,
        "a.py::B::one": Verdict.NO_PIPELINE,
        "a.py::B::two": Verdict.SOUND,
        "b.py::A::one": Verdict.NO_PIPELINE,
        "b.py::A::two": Verdict.FAILING,
    }
    assert collapse(Verdict.NO_PIPELINE, verdicts) == ["a.py::A", "a.py::B::one", "b.py"]


@pytest.mark.parametrize("runner", sorted(expected.DIFFERENCES))
def test_what_differs_on_a_runner_fits_what_is_expected_of_all(runner: str) -> None:
    expectations = expected.load(apache_beam.__version__, runner)
    assert expectations.skipped
