"""Pipelines of Beam's TypeScript SDK, submitted to a job server by Node programs."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.job_server import job_server

pytestmark = [
    pytest.mark.grpc,
    pytest.mark.skipif(shutil.which("npm") is None, reason="Node is not installed"),
]
PROGRAMS = Path(__file__).parent / "typescript"
SOON_S = 300.0
FAILS = {
    # The SDK reads the payload of a distribution as an iterable. Beam's model has four varints
    # (metrics.proto, beam:metric:user:distribution_int64:v1), which the server sends.
    "runs a map with counters": "index out of range",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, with all that they import."""
    copy = tmp_path_factory.mktemp("typescript") / "programs"
    shutil.copytree(PROGRAMS, copy, ignore=shutil.ignore_patterns("node_modules"))
    install = ["npm", "install", "--no-audit", "--no-fund"]
    subprocess.run(install, cwd=copy, check=True, capture_output=True, timeout=SOON_S)
    return copy


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with job_server() as url:
        yield url


def test_words_are_counted(folder: Path, endpoint: str) -> None:
    """The second program expects what is wrong: so the first one has looked at the counts."""
    for count, status in (("3", 0), ("4", 1)):
        program = ["node", "word_count.js", endpoint, count]
        ended = subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=SOON_S)
        assert ended.returncode == status, ended.stderr
    assert "Job finished in state FAILED" in ended.stderr


def test_primitives(folder: Path, endpoint: str) -> None:
    """The first of them expects that a pipeline with a wrong assertion fails."""
    report = folder / "report.json"
    options = ["--exit", "--timeout=60000", "--grep=on the job server runs|fails on bad assert"]
    reporter = ["--reporter=json", f"--reporter-option=output={report}"]
    subprocess.run(
        ["node_modules/.bin/mocha", *options, *reporter, "primitives.js"],
        cwd=folder,
        env={**os.environ, "JOB_ENDPOINT": endpoint},
        capture_output=True,
        timeout=2 * SOON_S,
    )
    found = json.loads(report.read_text())
    on_server = [each for each in found["tests"] if "on the job server" in each["fullTitle"]]
    problems = {each["title"]: each["err"]["message"] for each in on_server if each["err"]}
    assert problems.keys() == FAILS.keys(), problems
    assert all(FAILS[title] in text for title, text in problems.items())
    assert len(on_server) == 11
