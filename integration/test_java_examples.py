"""The pipelines in Java of the examples, built by Maven, on a job server."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.job_server import job_server

pytestmark = [
    pytest.mark.grpc,
    pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven is not installed"),
]
EXAMPLES = Path(__file__).parents[1] / "examples" / "java"
BUILDS_WITHIN_S = 1_200.0
"""With what Maven downloads the first time."""
ENDS_WITHIN_S = 300.0
SECONDS = 5
ENVIRONMENTS = ["--defaultEnvironmentType=LOOPBACK", "--defaultEnvironmentType=DOCKER"]


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What ``java`` needs to run the examples."""
    folder = tmp_path_factory.mktemp("java") / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("target"))
    goals = ["compile", "dependency:copy-dependencies", "-DoutputDirectory=target/jars"]
    subprocess.run(
        ["mvn", "--quiet", "--batch-mode", *goals], cwd=folder, check=True, timeout=BUILDS_WITHIN_S
    )
    return f"{folder}/target/classes:{folder}/target/jars/*"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A server without containers."""
    with job_server("--java_class_path=staged") as url:
        yield url


def submit(class_path: str, program: str, endpoint: str, *options: str) -> None:
    command = ["java", "-cp", class_path, program, "--runner=PortableRunner"]
    ended = subprocess.run(
        [*command, f"--jobEndpoint={endpoint}", *options],
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.timeout(BUILDS_WITHIN_S + ENDS_WITHIN_S)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_word_count(class_path: str, endpoint: str, tmp_path: Path, environment: str) -> None:
    (tmp_path / "words.txt").write_text("to be or not to be\n")
    files = f"--input={tmp_path}/words.txt", f"--output={tmp_path}/counts"
    submit(class_path, "WordCount", endpoint, *files, environment)
    lines = "".join(each.read_text() for each in tmp_path.glob("counts*")).splitlines()
    assert sorted(lines) == ["be: 2", "not: 1", "or: 1", "to: 2"]


@pytest.mark.timeout(BUILDS_WITHIN_S + ENDS_WITHIN_S)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_stateful_stream(
    class_path: str, endpoint: str, tmp_path: Path, environment: str
) -> None:
    options = f"--seconds={SECONDS}", f"--output={tmp_path}/totals"
    submit(class_path, "RunningTotals", endpoint, *options, environment)
    lines = "".join(each.read_text() for each in tmp_path.glob("totals*")).splitlines()
    totals = [int(each) for line in lines for each in re.findall(r"^seconds: (\d+)$", line)]
    assert len(totals) >= SECONDS
    assert sorted(totals) == list(range(1, len(totals) + 1))
