"""Packages of a pipeline on Spark Connect: as files of its session and by shared storage."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import EnvironmentStartError
from beam_spark_runner.runner import SparkPortableRunner
from integration.cluster import PACKAGE_ROOT
from tests.user_packages import sdist, wheel

pytestmark = [pytest.mark.connect, pytest.mark.grpc]

NAME = "packed_for_a_test"


@pytest.fixture
def remote_session(connect_server: str) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession.builder.remote(connect_server).create()
    yield session
    session.stop()


class Asked:
    """A pipeline that asks in all its tasks for the version, and which environment it is in."""

    def __init__(self, session: Any, *flags: str) -> None:
        def look(_: int) -> str:
            import sys

            return f"{__import__('packed_for_a_test').VERSION} {sys.prefix}"

        self._folder = tempfile.TemporaryDirectory()
        pipeline = beam.Pipeline(SparkPortableRunner(session), PipelineOptions(list(flags)))
        looked = pipeline | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(look)
        _ = looked | beam.Distinct() | beam.io.WriteToText(f"{self._folder.name}/seen")
        self._result = pipeline.run()

    def seen(self) -> list[list[str]]:
        """Wait for the end, and return pairs of version and prefix."""
        with self._folder as folder:
            assert self._result.wait_until_finish(400_000) == PipelineState.DONE
            return [
                line.split()
                for path in Path(folder).glob("seen*")
                for line in path.read_text().splitlines()
            ]


@pytest.mark.parametrize("storage", ["session", "shared storage"])
def test_two_versions_at_a_time(remote_session: Any, tmp_path: Path, storage: str) -> None:
    shared = [f"--temp_location={tmp_path / 'shared'}"] if storage == "shared storage" else []
    number = f"{len(storage)}"
    one = wheel(tmp_path, NAME, f"1.{number}", f"VERSION = '1.{number}'\n")
    two = sdist(tmp_path, NAME, f"2.{number}", f"VERSION = '2.{number}'\n")
    both = [Asked(remote_session, f"--extra_package={file}", *shared) for file in (one, two)]
    ((version, prefix),), ((other, elsewhere),) = (each.seen() for each in both)
    assert [version, other] == [f"1.{number}", f"2.{number}"]
    assert prefix != elsewhere
    again = Asked(remote_session, f"--extra_package={one}", *shared).seen()
    assert again == [[version, prefix]], "an environment is made once for all sessions"
    if shared:
        assert list((tmp_path / "shared").iterdir()) == []


def test_a_package_that_cannot_be_installed(remote_session: Any, tmp_path: Path) -> None:
    file = sdist(tmp_path, NAME, "5.0", "", setup="raise SystemExit('this setup is broken')\n")
    with pytest.raises(EnvironmentStartError) as raised:
        Asked(remote_session, f"--extra_package={file}").seen()
    assert "pip cannot install" in str(raised.value)
    assert "this setup is broken" in str(raised.value)


_PROGRAM = """
import sys

import apache_beam as beam

PREFIX = "version"


def describe(_):
    import helps_a_test
    import packed_for_a_test
    import part_of_the_project

    found = (packed_for_a_test.VERSION, helps_a_test.VERSION, part_of_the_project.VERSION)
    return " ".join((PREFIX, *found))


if __name__ == "__main__":
    with beam.Pipeline(argv=["--runner=SparkPortableRunner", *sys.argv[2:]]) as p:
        described = p | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(describe)
        _ = described | beam.Distinct() | beam.io.WriteToText(sys.argv[1])
"""
_SETUP = """
from setuptools import setup
setup(name="part_of_the_project", version="4.0", py_modules=["part_of_the_project"])
"""


def test_a_program_with_all_of_them(connect_server: str, tmp_path: Path) -> None:
    """Requirements, a package, a project and a main session that only dill keeps."""
    index, project = tmp_path / "index", tmp_path / "project"
    for folder in (index, project):
        folder.mkdir()
    wheel(index, NAME, "3.1", "from helps_a_test import VERSION\n", requires=("helps_a_test",))
    extra = wheel(tmp_path, "helps_a_test", "3.3", "VERSION = '3.3'\n")
    (project / "setup.py").write_text(_SETUP)
    (project / "part_of_the_project.py").write_text("VERSION = '4.0'\n")
    (tmp_path / "requirements.txt").write_text(f"{NAME}==3.1\n")
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    flags = [
        f"--spark_master_url={connect_server}",
        f"--requirements_file={tmp_path / 'requirements.txt'}",
        f"--requirements_cache={tmp_path / 'cache'}",
        f"--extra_package={extra}",
        f"--setup_file={project / 'setup.py'}",
        "--save_main_session",
        "--pickle_library=dill",
    ]
    ended = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "out"), *flags],
        env={
            **os.environ,
            "PYTHONPATH": str(PACKAGE_ROOT),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(index),
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    lines = [path.read_text() for path in tmp_path.glob("out*")]
    assert lines == ["version 3.3 3.3 4.0\n"]
