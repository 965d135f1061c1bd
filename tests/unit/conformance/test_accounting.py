"""What a suite's process records: passes of ``assert_that`` count only where it was checked."""

from pathlib import Path

import pytest

from integration.validates_runner.ledger import Verdict, judge, settled
from integration.validates_runner.run import Result, run_suite
from integration.validates_runner.runners import FN_API, NOTHING
from integration.validates_runner.suites import SUITES, Suite

TESTS = """
import os, unittest
import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to, equal_to_per_window
from apache_beam.transforms.window import GlobalWindow

class Tests(unittest.TestCase):
    def test_assertion(self):
        with TestPipeline() as p:
            assert_that(p | beam.Create([1]), equal_to([1]))

    def test_assertion_per_window(self):
        with beam.Pipeline() as p:
            assert_that(p | beam.Create([1]), equal_to_per_window({GlobalWindow(): [1]}))

    def test_wrong_assertion(self):
        with TestPipeline() as p:
            assert_that(p | beam.Create([1]), equal_to([2]))

    def test_wrong_assertion_is_noticed(self):
        with self.assertRaises(Exception):
            with TestPipeline() as p:
                assert_that(p | beam.Create([1]), equal_to([2]))

    def test_no_assertion(self):
        with TestPipeline() as p:
            p | beam.Create([1])

    def test_own_runner(self):
        with TestPipeline(FnApiRunner()) as p:
            assert_that(p | beam.Create([1]), equal_to([1]))

    def test_no_pipeline(self):
        self.assertEqual(1, 1)

    def test_subtests(self):
        for i in range(2):
            with self.subTest(i=i):
                self.assertEqual(i, 0)

    @unittest.skip("not today")
    def test_skipped(self):
        pass

    def test_crash(self):
        os._exit(7)

    def test_zzz_after_the_crash(self):
        pass
"""
CLASS = "sample_test.py::Tests::test_"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Result]]:
    folder = tmp_path_factory.mktemp("suite")
    (folder / "sample_test.py").write_text(TESTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SUITES, "sample", Suite(targets=(str(folder / "sample_test.py"),)))
        nothing = run_suite("sample", NOTHING, folder / "nothing.jsonl")
        fn_api = run_suite("sample", FN_API, folder / "fn.jsonl", known=settled(nothing))
        by_runner = {NOTHING: nothing, FN_API: fn_api}
    return {
        runner: {
            f"sample_test.py::{test.partition('::')[2]}": result for test, result in of.items()
        }
        for runner, of in by_runner.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "on_nothing", "verdict"),
    [
        ("assertion", "failed", Verdict.SOUND),
        ("assertion_per_window", "failed", Verdict.SOUND),
        ("wrong_assertion", "failed", Verdict.FAILING),
        ("wrong_assertion_is_noticed", "failed", Verdict.SOUND),
        ("no_assertion", "passed", Verdict.VACUOUS),
        ("own_runner", "passed", Verdict.OWN_RUNNER),
        ("no_pipeline", "passed", Verdict.NO_PIPELINE),
        ("subtests", "failed", Verdict.FAILING),
        ("skipped", "skipped", Verdict.SKIPPED),
        ("crash", "failed", Verdict.FAILING),
        ("zzz_after_the_crash", "passed", Verdict.NO_PIPELINE),
    ],
)
@pytest.mark.rare
def test_outcomes(
    results: dict[str, dict[str, Result]], test: str, on_nothing: str, verdict: Verdict
) -> None:
    nothing = results[NOTHING]
    assert nothing[CLASS + test].outcome == on_nothing
    assert judge(results[FN_API], nothing)[CLASS + test] is verdict


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("assertion", "never checked: assert_that"),
        ("crash", "its process ended with 7"),
        ("skipped", "Skipped: not today"),
    ],
)
@pytest.mark.rare
def test_messages(results: dict[str, dict[str, Result]], test: str, message: str) -> None:
    assert results[NOTHING][CLASS + test].message == message


def test_the_suites_are_part_of_the_installed_beam(tmp_path: Path) -> None:
    import apache_beam

    beam = Path(apache_beam.__file__).parent
    paths = [beam / path for suite in SUITES.values() for path in suite.targets + suite.left_out]
    assert [path for path in paths if not path.exists()] == []


@pytest.mark.slow
@pytest.mark.rare
def test_single_tests_of_a_suite(tmp_path: Path) -> None:
    file = tmp_path / "sample_test.py"
    file.write_text(TESTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SUITES, "sample", Suite(targets=(str(tmp_path),)))
        test = f"{file}::Tests::test_no_pipeline"
        found = run_suite("sample", NOTHING, tmp_path / "log.jsonl", tests=[test])
    assert {name.rpartition("_")[2] for name in found} == {"pipeline"}


def test_a_process_that_does_not_even_begin_is_an_error(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SUITES, "sample", Suite(targets=(str(tmp_path / "missing.py"),)))
        with pytest.raises(RuntimeError, match="pytest ended with 4"):
            run_suite("sample", NOTHING, tmp_path / "log.jsonl")
