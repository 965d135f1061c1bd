"""Examples in docstrings that are written as a session with Python do what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "beam_spark_runner"


# By their text: importing all modules only to look would take as long as all unit tests.
FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text()]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_the_examples_of_a_module_hold(path: Path) -> None:
    module = importlib.import_module(module_of(path).removesuffix(".__init__"))
    tests = doctest.DocTestFinder().find(module)
    found = sum(len(test.examples) for test in tests)
    assert found == path.read_text().count(">>> "), "some examples are in no docstring"
    report: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    failed = sum(runner.run(test, out=report.append).failed for test in tests)
    assert not failed, "".join(report)


def test_there_are_examples() -> None:
    assert FILES
