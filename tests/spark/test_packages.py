"""Packages that a pipeline brings along: where its code runs they are there, and nowhere else."""

import importlib.util
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import EnvironmentStartError
from tests.harvest import harvest, run
from tests.stateful import Number
from tests.user_packages import project, sdist, wheel

pytestmark = [pytest.mark.spark, pytest.mark.grpc]

NAME = "packed_for_a_test"


@pytest.fixture
def no_index(spark_session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a package index in a worker gets no answer."""
    workers = spark_session.sparkContext.environment
    monkeypatch.setitem(workers, "PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setitem(workers, "PIP_RETRIES", "0")


def look(_: Any) -> tuple[str, str]:
    module: Any = importlib.import_module("packed_for_a_test")
    return module.VERSION, sys.prefix


def versions(p: beam.Pipeline) -> dict[str, Any]:
    """Ask in two tasks for the version of the package, and which environment it is in."""
    seen = p | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(look)
    return {"seen": seen | beam.Distinct()}


@pytest.mark.rare
@pytest.mark.usefixtures("no_index")
def test_two_versions_in_one_session(spark_session: Any, tmp_path: Path) -> None:
    """Two pipelines at once, and then the first again."""
    one = wheel(tmp_path, NAME, "1.0", "VERSION = '1.0'\n")
    two = sdist(tmp_path, NAME, "2.0", "VERSION = '2.0'\n")

    def seen_with(file: Path) -> tuple[str, str]:
        (seen,) = harvest(spark_session, versions, f"--extra_package={file}")["seen"]
        version, prefix = seen
        return version, prefix

    with ThreadPoolExecutor() as at_once:
        found = [*at_once.map(seen_with, (one, two)), seen_with(one)]
    assert [version for version, _ in found] == ["1.0", "2.0", "1.0"]
    first, second, third = (prefix for _, prefix in found)
    assert first != second
    assert first == third, "an environment is made once"
    assert importlib.util.find_spec(NAME) is None


@pytest.mark.rare
@pytest.mark.usefixtures("no_index")
def test_requirements(spark_session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Beam has downloaded where the program runs is all that workers need."""
    index = tmp_path / "index"
    index.mkdir()
    wheel(index, NAME, "3.1", "from helps_a_test import VERSION\n", requires=("helps_a_test",))
    wheel(index, "helps_a_test", "3.3", "VERSION = '3.3'\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"{NAME}==3.1\nhelps_a_test\n")
    flags = [f"--requirements_file={requirements}", f"--requirements_cache={tmp_path / 'cache'}"]
    ((version, _),) = harvest(spark_session, versions, *flags)["seen"]
    assert version == "3.3"


class Numbering(Number):
    def process(  # type: ignore[override]
        self, pair: tuple[str, Any], next_state: Any = beam.DoFn.StateParam(Number.NEXT)
    ) -> Iterator[tuple[str, str, int]]:
        for key, number in super().process(pair, next_state):
            yield key, look(pair)[0], number


@pytest.mark.rare
@pytest.mark.usefixtures("no_index")
def test_a_project_and_files(spark_session: Any, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in project(NAME, "4.0", "VERSION = '4.0'\n").items():
        (folder / name).write_text(text)
    staged = tmp_path / "module_that_was_staged.py"
    staged.write_text("COLOUR = 'green'\n")

    def build(p: beam.Pipeline) -> dict[str, Any]:
        def colour(_: Any) -> tuple[str, bool]:
            module: Any = importlib.import_module("module_that_was_staged")
            path = Path(os.environ["SEMI_PERSISTENT_DIRECTORY"], "staged", f"{module.__name__}.py")
            return module.COLOUR, path.exists()

        keyed = p | "Keyed" >> beam.Create([("a", 1), ("a", 2), ("b", 3)])
        return {
            **versions(p),
            "colour": p | beam.Impulse() | "Colour" >> beam.Map(colour),
            "state": keyed | beam.ParDo(Numbering()),
        }

    flags = [f"--setup_file={folder / 'setup.py'}", f"--files_to_stage={staged}"]
    found = harvest(spark_session, build, *flags)
    assert [version for version, _ in found["seen"]] == ["4.0"]
    assert found["colour"] == [("green", True)]
    assert found["state"] == [("a", "4.0", 0), ("a", "4.0", 1), ("b", "4.0", 0)]


BROKEN = "raise SystemExit('the setup of this package is broken')\n"


@pytest.mark.rare
@pytest.mark.usefixtures("no_index")
def test_a_package_that_cannot_be_installed(spark_session: Any, tmp_path: Path) -> None:
    file = sdist(tmp_path, NAME, "5.0", "", setup=BROKEN)
    with pytest.raises(EnvironmentStartError) as raised:
        run(spark_session, versions, f"--extra_package={file}")
    text = str(raised.value)
    assert "pip cannot install" in text
    assert file.name in text
    assert "the setup of this package is broken" in text
    assert len(text.splitlines()) < 120
