"""What is the same in each container of an application, and what only one of them has."""

import os
import sys
from pathlib import Path

import pytest

from beam_spark_runner.spark.session import preflight
from beam_spark_runner.spark.session.container import (
    folder_of_application,
    path_for_all,
    python_for_executors,
)

APPLICATION = "/data/usercache/nobody/appcache/application_7"


def answer(container: str, python: str) -> tuple[str, ...]:
    """Return what the check of an executor answers there."""
    return f"{APPLICATION}/{container}", "node", python, "3.11", "", "", ""


def test_containers_with_one_interpreter_in_an_archive_are_the_same() -> None:
    """Else the packages are packed for the first containers, and for each application."""
    answers = [
        answer(each, f"{APPLICATION}/{each}/py/bin/python")
        for each in ("container_2", "container_3")
    ]
    (installed,) = preflight._sorted(answers)
    assert installed.python == "./py/bin/python"


@pytest.mark.parametrize(
    ("path", "folder", "for_all"),
    [
        ("/usr/bin/python3", f"{APPLICATION}/container_2", "/usr/bin/python3"),
        (f"{APPLICATION}/container_22/a", f"{APPLICATION}/container_2", None),
        ("/usr/bin/python3", "/", "/usr/bin/python3"),
        ("/container/env/bin/python", "/container", "./env/bin/python"),
    ],
)
def test_path_for_all(path: str, folder: str, for_all: str | None) -> None:
    assert path_for_all(path, folder) == (for_all or path)


def test_a_driver_in_a_container_names_its_interpreter_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", f"{os.getcwd()}/py/bin/python")
    assert python_for_executors({"CONTAINER_ID": "container_1"}) == "./py/bin/python"
    assert python_for_executors({}) == sys.executable


def test_the_folder_of_an_application(tmp_path: Path) -> None:
    folders = {"LOCAL_DIRS": f"{tmp_path}/missing,{tmp_path}"}
    assert folder_of_application({"CONTAINER_ID": "container_1", **folders}) == tmp_path
    assert folder_of_application(folders) is None
    assert folder_of_application({"CONTAINER_ID": "container_1"}) is None


@pytest.mark.parametrize(
    ("text", "python", "said"),
    [
        pytest.param(
            'java.io.IOException: Cannot run program "/nodes/have/no/python" (in directory "."): '
            "error=2, No such file or directory\n\tat java.base/java.lang.ProcessBuilder.start\n",
            "/nodes/have/no/python",
            'executors cannot start Python: Cannot run program "/nodes/have/no/python" '
            '(in directory "."): error=2, No such file or directory',
            id="missing",
        ),
        pytest.param(
            "ModuleNotFoundError: No module named 'pyarrow'\n",
            "/usr/bin/python3",
            "the executors' Python (/usr/bin/python3) has no pyarrow.",
            id="without pyarrow",
        ),
        pytest.param(
            "[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed",
            None,
            "the executors' Python has no pyarrow.",
            id="on Connect",
        ),
        pytest.param(
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9",
            "python3",
            "executors run another Python (python3) than this program "
            f"({sys.version_info[0]}.{sys.version_info[1]}).",
            id="of another version",
        ),
        pytest.param(
            ": org.apache.spark.SparkException: \nError from python worker:\n  not found\n"
            "PYTHONPATH was:\n  /a\n",
            "./py/bin/python",
            "the executors' Python did not start: not found (./py/bin/python)",
            id="that does not start",
        ),
        pytest.param("No space left on device", "python3", None, id="something else"),
    ],
)
def test_what_is_wrong_with_the_interpreter_names_it(
    text: str, python: str | None, said: str | None
) -> None:
    assert preflight._what_spark_says(text, python) == said
