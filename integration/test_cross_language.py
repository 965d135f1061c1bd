"""Pipelines of two languages: the examples with transforms in Go, and with Go's of Python."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms import window
from apache_beam.transforms.external import ExternalTransform

from integration.expansion_service import IN_PROCESSES, expansion_service, free_port, listening
from integration.go_sdk.evidence import missing
from integration.go_sdk.run import client_of
from integration.job_server import job_server

pytestmark = [
    pytest.mark.grpc,
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
]
EXAMPLES = Path(__file__).parents[1] / "examples"
BUILDS_WITHIN_S = 1_800.0
"""With what Go downloads the first time."""
ENDS_WITHIN_S = 500.0
COUNT_WORDS = "beam:example:go:count_words:v1"
COUNTED = {"to: 2", "be: 2", "or: 1", "not: 1", "that: 1", "is: 1", "the: 1", "question: 1"}
COUNT = re.compile(r"\b(?:to|be|or|not|that|is|the|question): \d+\b")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the compiled examples."""
    folder = tmp_path_factory.mktemp("go")
    build = ["go", "build", "-o", str(folder), "./..."]
    subprocess.run(build, cwd=EXAMPLES / "go", check=True, timeout=BUILDS_WITHIN_S)
    return folder


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with job_server() as url:
        yield url


@pytest.mark.timeout(BUILDS_WITHIN_S + ENDS_WITHIN_S)
@pytest.mark.parametrize("environment", [(), ("--environment_type=LOOPBACK",)])
@pytest.mark.parametrize("on_a_server", [False, True])
def test_a_python_pipeline_with_a_transform_in_go(
    programs: Path, request: pytest.FixtureRequest, on_a_server: bool, environment: tuple[str, ...]
) -> None:
    """Nothing but the Go program knows what the transform does."""
    where = "--spark_master_url=local[2]"
    if on_a_server:
        where = f"--job_endpoint={request.getfixturevalue('endpoint')}"
    port = free_port()
    service = [str(programs / "expansion_service"), f"--port={port}"]
    pipeline = [sys.executable, str(EXAMPLES / "go_transform.py"), "--runner=SparkPortableRunner"]
    with listening(service, port):
        ended = subprocess.run(
            [*pipeline, f"--expansion_service=localhost:{port}", where, *environment],
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
        )
    assert ended.returncode == 0, ended.stderr
    assert set(COUNT.findall(ended.stderr)) == COUNTED, ended.stderr


@pytest.mark.timeout(BUILDS_WITHIN_S + ENDS_WITHIN_S)
def test_a_go_pipeline_with_a_transform_in_python(programs: Path, endpoint: str) -> None:
    """Its assertion is a step: so the server is asked whether elements have reached it."""
    with (
        client_of(endpoint) as client,
        expansion_service(*IN_PROCESSES, "--fully_qualified_name_glob=*") as port,
    ):
        ended = subprocess.run(
            [
                *(str(programs / "python_transform"), f"--expansion_service=localhost:{port}"),
                *("--runner=universal", f"--endpoint={endpoint}", "--environment_type=LOOPBACK"),
                "--experiments=of_this_test",
            ],
            capture_output=True,
            text=True,
            timeout=ENDS_WITHIN_S,
        )
        assert ended.returncode == 0, ended.stderr
        (job,) = client.jobs_with("of_this_test")
        done = client.ended_job(job)
    assert list(missing(done)) == []
    made_by = {step.environment_id for step in done.pipeline.components.transforms.values()}
    environments = done.pipeline.components.environments
    assert {environments[each].urn for each in made_by if each} == {
        "beam:env:external:v1",
        "beam:env:process:v1",
    }


@pytest.mark.parametrize(
    ("urn", "windows", "problem"),
    [
        ("beam:no:such", window.GlobalWindows(), 'no transform has the URN "beam:no:such"'),
        (COUNT_WORDS, window.FixedWindows(1), 'input "input": its windows are .*, not the global'),
        (COUNT_WORDS, window.GlobalWindows(), "the configuration has 0 fields, and not 1"),
    ],
)
def test_what_the_service_in_go_refuses(
    programs: Path, urn: str, windows: Any, problem: str
) -> None:
    """Before anything runs."""
    port = free_port()
    pipeline = beam.Pipeline()
    texts = pipeline | beam.Create(["a"]).with_output_types(str)
    texts = texts | beam.WindowInto(windows)
    with listening([str(programs / "expansion_service"), f"--port={port}"], port):
        transform = ExternalTransform(urn, b"", f"localhost:{port}")
        with pytest.raises(RuntimeError, match=problem):
            _ = texts | transform
