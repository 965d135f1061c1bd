"""Class archives of real JVMs: who makes one, and who starts from it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.programs import ROOT, Program, lines_of, run

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.rare,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks at files in memory"),
]

LOCAL = "--spark_master_url=local[2]"
WRITES_WITHIN_S = 900.0  # at the lowest priority, next to other tests
NO_ARCHIVE = {"SPARK_SUBMIT_OPTS": ""}  # that of the tests themselves
SCRIPT = """
    from pyspark import SparkContext
    with beam.Pipeline(argv=OPTIONS) as p:
        p | beam.Create([1]) | beam.Map(str)
    with open(f"/proc/{SparkContext._gateway.proc.pid}/maps") as maps:
        print(*sorted({line.split()[-1] for line in maps if line.endswith(".jsa\\n")}))
    """


def archives_in(folder: Path) -> list[Path]:
    return [*folder.glob("beam-spark-runner/spark-classes/*")]


def test_the_second_program_starts_from_what_the_first_one_has_left(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    settings = {"XDG_CACHE_HOME": str(cache), **NO_ARCHIVE}
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir()
    first = Program(tmp_path / "first", SCRIPT, LOCAL, **settings)
    ended = first.end(others_end_within_s=WRITES_WITHIN_S)
    assert ended.code == 0, ended.err
    assert "spark-classes" not in ended.out
    (archive,) = archives_in(cache)  # and neither a lock nor half an archive
    assert archive.stat().st_mode & 0o777 == 0o600
    ended = run(tmp_path / "second", SCRIPT, LOCAL, **settings)
    assert ended.code == 0, ended.err
    assert str(archive) in ended.out.split()
    assert lines_of(ended.err) == []
    assert archives_in(cache) == [archive]
    (cache / "beam-spark-runner").chmod(0o777)
    ended = run(tmp_path / "third", SCRIPT, LOCAL, **settings)
    assert (ended.code, lines_of(ended.err)) == (0, [])
    assert str(archive) not in ended.out.split()


def test_a_folder_in_which_nothing_can_be_written_is_silent(tmp_path: Path) -> None:
    ended = run(tmp_path, SCRIPT, LOCAL, "--spark_class_archive=/proc/none", **NO_ARCHIVE)
    assert (ended.code, lines_of(ended.err)) == (0, [])


def test_the_image_of_the_job_server_has_the_archive_from_which_its_spark_starts(
    tmp_path: Path,
) -> None:
    """The step of the Dockerfile runs here as ``docker build`` runs it."""
    dockerfile = (ROOT / "docker/Dockerfile").read_text()
    found = re.search(r"\nRUN (python -m beam_spark_runner\.make_class_archive.*)\n", dockerfile)
    assert found is not None
    home, temp = tmp_path / "home", tmp_path / "temp"
    for folder in (home, temp):
        folder.mkdir()
    settings = {"HOME": str(home), "XDG_CACHE_HOME": "", **NO_ARCHIVE}
    subprocess.run(
        ["/bin/sh", "-c", found[1]],
        env={
            **os.environ,
            **settings,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(temp),
        },
        cwd=home,
        check=True,
        timeout=WRITES_WITHIN_S,
    )
    (archive,) = archives_in(home / ".cache")
    assert [each for each in temp.rglob("*") if not each.is_dir()] == []
    script = """
        from beam_spark_runner.__main__ import main
        sys.exit(main(sys.argv[1:]))
        """
    server = Program(tmp_path, script, LOCAL, "--job_port=0", "--artifact_port=0", **settings)
    assert server.read_line().startswith("job service at "), server.end()
    children = psutil.Process(server.pid).children(recursive=True)
    (jvm,) = (each for each in children if each.name() == "java")
    assert f"-XX:SharedArchiveFile={archive}" in jvm.cmdline()
    assert str(archive) in {each.path for each in jvm.memory_maps()}
    server.send(signal.SIGTERM)
    assert server.end(60).code == 0
