"""The ledgers of other projects' tests, and the table of what came of them."""

from pathlib import Path

import pytest

from integration.third_party import ledger_files
from integration.third_party.figures import Figures, table
from integration.third_party.projects import GROUPS, HERE, Project, requirements_of, version_of
from integration.validates_runner.expected import ExpectationsError
from integration.validates_runner.ledger import Verdict
from integration.validates_runner.runners import FN_API, IN_PROCESS, SPARK_EMBEDDED

LEDGER = """
version = "1.2"
no_pipeline = ["a_test.py"]

[[failing]]
reason = "fails everywhere"
tests = ["b_test.py::one"]

[[on_spark.failing]]
reason = "looks into its own process"
passes_on = "spark-one-process"
tests = ["b_test.py::two"]
"""
PROJECTS = [(group, project) for group, projects in GROUPS.items() for project in projects]
IDS = [project.name for _, project in PROJECTS]


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.toml"
    path.write_text(LEDGER)
    return path


def test_a_ledger_without_spark(ledger: Path) -> None:
    expected = ledger_files.load(ledger, "1.2", IN_PROCESS)
    assert expected.failing == {"b_test.py::one": "fails everywhere"}
    assert expected.passes_on == {}
    assert expected.no_pipeline == {"a_test.py"}


def test_a_ledger_on_spark(ledger: Path) -> None:
    expected = ledger_files.load(ledger, "1.2", SPARK_EMBEDDED)
    assert expected.failing.keys() == {"b_test.py::one", "b_test.py::two"}
    assert expected.passes_on == {"b_test.py::two": "spark-one-process"}


def test_a_ledger_is_of_one_version(ledger: Path) -> None:
    with pytest.raises(ExpectationsError, match=r"ledger\.toml is for 1\.2, not for 1\.3"):
        ledger_files.load(ledger, "1.3", IN_PROCESS)


def test_a_ledger_names_a_test_once(ledger: Path) -> None:
    ledger.write_text(LEDGER.replace("::two", "::one"))
    with pytest.raises(ExpectationsError, match="twice"):
        ledger_files.load(ledger, "1.2", SPARK_EMBEDDED)


@pytest.mark.parametrize(("group", "project"), PROJECTS, ids=IDS)
def test_each_project_is_pinned_and_its_ledger_is_of_that_version(
    group: str, project: Project
) -> None:
    version = version_of(project, group)
    for runner in (IN_PROCESS, SPARK_EMBEDDED):
        if project.ledger.exists():
            ledger_files.load(project.ledger, version, runner)


def test_each_ledger_is_of_a_project() -> None:
    ledgers = {project.ledger for _, project in PROJECTS}
    assert set((HERE / "ledgers").iterdir()) <= ledgers


@pytest.mark.parametrize("group", GROUPS)
def test_all_packages_are_pinned(group: str) -> None:
    lines = requirements_of(group).read_text().splitlines()
    assert [line for line in lines if "==" not in line] == []


def test_tests_that_pass_on_the_peer_alone_are_counted() -> None:
    verdicts = {
        FN_API: {"a": Verdict.SOUND, "b": Verdict.VACUOUS, "c": Verdict.FAILING},
        IN_PROCESS: {"a": Verdict.FAILING, "b": Verdict.VACUOUS, "c": Verdict.FAILING},
    }
    figures = Figures(verdicts)
    assert figures.only_on_peer(IN_PROCESS) == ["a"]
    assert table({"project": figures}, [IN_PROCESS]).splitlines()[-1] == (
        "| project | 3 | 0 | 0 | 0 | 0 / 1 / 2 | 1 / 1 / 1 | 1 |"
    )
