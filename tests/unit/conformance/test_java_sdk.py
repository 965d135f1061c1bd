"""What counts as a pass of a Java test, and what happens to a test whose JVM hangs or dies."""

import dataclasses
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_beam.portability.api import (
    beam_runner_api_pb2,
    metrics_pb2,
)

from integration.go_sdk import ledger
from integration.go_sdk.evidence import EndedJob
from integration.go_sdk.run import Outcome, Verdict, counters_of
from integration.java_sdk.__main__ import EXPECTATIONS, chosen, table
from integration.java_sdk.evidence import missing
from integration.java_sdk.programs import (
    Answer,
    MissingToolsError,
    Said,
    TestJvm,
    check_tools,
)
from integration.java_sdk.suite import Suite, read_results

SATISFIED = ("check", "org.apache.beam.sdk.testing.PAssert", "PAssertSuccess")


def pipeline() -> beam_runner_api_pb2.Pipeline:
    """``PAssert.that`` as Java builds it: a composite whose last step counts."""
    made = beam_runner_api_pb2.Pipeline()
    transforms = made.components.transforms
    transforms["assert"].unique_name = "PAssert$0"
    transforms["assert"].subtransforms.append("verify")
    transforms["verify"].unique_name = "PAssert$0/VerifyAssertions"
    transforms["verify"].subtransforms.append("check")
    transforms["check"].unique_name = "PAssert$0/VerifyAssertions/ParDo(DefaultConclude)"
    return made


DONE = EndedJob(state="DONE", pipeline=pipeline(), counters={SATISFIED: 1})


@pytest.mark.parametrize(
    ("job", "problems"),
    [
        pytest.param(DONE, [], id="the assertion is satisfied"),
        pytest.param(
            dataclasses.replace(DONE, counters={}),
            ["PAssert$0 has not been satisfied"],
            id="nothing has run",
        ),
        pytest.param(
            dataclasses.replace(DONE, counters={("other", *SATISFIED[1:]): 1}),
            ["PAssert$0 has not been satisfied"],
            id="another assertion is satisfied",
        ),
        pytest.param(
            dataclasses.replace(DONE, pipeline=beam_runner_api_pb2.Pipeline()),
            ["it has no assertion"],
            id="no assertion",
        ),
        pytest.param(
            dataclasses.replace(DONE, state="CANCELLED"),
            ["the final state is CANCELLED"],
            id="cancelled",
        ),
        pytest.param(
            dataclasses.replace(
                DONE,
                state="FAILED",
                error="PAssert$0/{A, B}: org.apache.beam.sdk.util.UserCodeException: should be 3",
            ),
            [],
            id="an assertion fails, as the test expects",
        ),
        pytest.param(
            dataclasses.replace(DONE, state="FAILED", error="Spark failed"),
            ["the job failed, but not in user code: 'Spark failed'"],
            id="it failed by itself",
        ),
    ],
)
def test_a_pass_is_sound_if_the_server_knows_of_each_assertion(
    job: EndedJob, problems: list[str]
) -> None:
    assert list(missing(job)) == problems


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (
            "ParDoTest$StateTests",
            ["a.ParDoTest$StateTests#testBag", "a.ParDoTest$StateTests#testMap"],
        ),
        ("ParDoTest$StateTests#testMap", ["a.ParDoTest$StateTests#testMap"]),
        ("Tests", ["a.ParDoTest$StateTests#testBag", "a.ParDoTest$StateTests#testMap"]),
        ("ViewTest", ["a.ViewTest#testMap"]),
    ],
)
def test_a_name_is_the_end_of_a_class_or_of_a_method_with_its_class(
    name: str, found: list[str]
) -> None:
    tests = [
        "a.ParDoTest$StateTests#testBag",
        "a.ParDoTest$StateTests#testMap",
        "a.ViewTest#testMap",
    ]
    assert list(chosen(tests, [name])) == found


def test_the_table_has_a_row_for_each_class_and_one_for_all() -> None:
    outcomes = {
        "a.X#one": Outcome(verdict=Verdict.SOUND),
        "a.X#two": Outcome(verdict=Verdict.FAILING, why="no"),
        "a.Y#one": Outcome(verdict=Verdict.SOUND),
    }
    assert table(outcomes).splitlines() == [
        "| class | sound | unproven | failing | skipped | no pipeline |",
        "| --- | --- | --- | --- | --- | --- |",
        "| `a.X` | 1 | 0 | 1 | 0 | 0 |",
        "| `a.Y` | 1 | 0 | 0 | 0 | 0 |",
        "| all | 2 | 0 | 1 | 0 | 0 |",
    ]


def test_programs_that_are_missing_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingToolsError, match=r"java \(.*javac \(.*mvn \("):
        check_tools()


STANDS_IN = f"""#!{sys.executable}
import base64, os, sys, time
for line in sys.stdin:
    test, _, options = line.partition(" ")
    if test == "hangs":
        time.sleep(600)
    if test == "dies":
        os._exit(1)
    print("FAILED", base64.b64encode(f"{{os.getpid()}} {{options}}".encode()).decode(), flush=True)
"""


@pytest.fixture
def jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestJvm]:
    """A program in place of a JVM: it answers each test with its process id and the options."""
    program = tmp_path / "java"
    program.write_text(STANDS_IN)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    started = TestJvm(tmp_path, tmp_path / "log")
    yield started
    started.close()


def process_of(said: Said | None) -> str:
    assert said is not None
    assert said.answer is Answer.FAILED
    number, options = said.why.split(" ", 1)
    assert json.loads(options) == ["--one", "--two words"]
    return number


@pytest.mark.parametrize("test", ["hangs", "dies"])
def test_a_test_without_an_answer_costs_its_jvm_and_the_next_test_starts_one(
    test: str, jvm: TestJvm
) -> None:
    options = ["--one", "--two words"]
    first = process_of(jvm.run("fails", options, 60.0))
    assert process_of(jvm.run("fails", options, 60.0)) == first
    assert jvm.run(test, options, 0.2 if test == "hangs" else 60.0) is None
    assert process_of(jvm.run("fails", options, 60.0)) != first


class Jobs:
    """A client of a job server that has no jobs."""

    def jobs_with(self, experiment: str) -> list[str]:
        return []


def test_all_tests_of_a_suite_run_and_their_results_are_stored(
    jvm: TestJvm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.jsonl"
    suite = Suite(tmp_path, "url", Jobs(), [], results)  # type: ignore[arg-type]
    outcomes = suite.run(["one", "two", "three"], 2, 60.0)
    assert {test: outcome.verdict for test, outcome in outcomes.items()} == dict.fromkeys(
        ["one", "two", "three"], Verdict.FAILING
    )
    assert read_results(results) == outcomes
    assert capsys.readouterr().out.count("failing: ") == 3


def test_an_interrupt_ends_the_jvms_and_runs_no_more_tests(jvm: TestJvm, tmp_path: Path) -> None:
    class Interrupted(Jobs):
        def jobs_with(self, experiment: str) -> list[str]:
            raise KeyboardInterrupt

    results = tmp_path / "results.jsonl"
    suite = Suite(tmp_path, "url", Interrupted(), [], results)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        suite.run(["one", "two", "three"], 1, 60.0)
    assert not results.exists()


@pytest.mark.parametrize(
    ("count", "coded"), [(0, b"\x00"), (3, b"\x03"), (300, b"\xac\x02")], ids=["0", "3", "300"]
)
def test_counters_of_users_are_read(count: int, coded: bytes) -> None:
    labels = dict(zip(("PTRANSFORM", "NAMESPACE", "NAME"), SATISFIED, strict=True))
    info = metrics_pb2.MonitoringInfo(
        urn="beam:metric:user:sum_int64:v1", payload=coded, labels=labels
    )
    assert counters_of([info]) == {SATISFIED: count}


def test_tests_of_the_ledger_that_are_slow_have_limits_in_seconds() -> None:
    expected = ledger.load("2.65.0", EXPECTATIONS)
    limits = ledger.slow(EXPECTATIONS)
    assert min(limits.values()) > 180
    assert not limits.keys() & expected.keys()
