"""A job server whose staging area is in an object store."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

from integration.checkpoint_store import environment_of
from integration.job_server import job_server
from integration.object_store import BUCKET, ObjectStore, start_object_store
from integration.test_packages import NAME
from tests.user_packages import sdist

AREA = f"--artifacts_dir=s3://{BUCKET}/staging"
SOON_S = 300.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    log = tmp_path_factory.mktemp("store") / "log"
    with start_object_store(log) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", running.endpoint)
        with environment_of(running):
            yield running


@pytest.fixture
def server(store: ObjectStore) -> Iterator[str]:
    with job_server(AREA) as url:
        yield url


def test_packages_of_clients_lie_in_the_store_while_their_job_lasts(
    store: ObjectStore, server: str, tmp_path: Path
) -> None:
    file = sdist(tmp_path, NAME, "3.5", "VERSION = '3.5'\n")
    began, may_end = tmp_path / "began", tmp_path / "may end"

    def look(_: object) -> None:
        from pathlib import Path
        from time import monotonic, sleep

        Path(began).write_text(__import__("packed_for_a_test").VERSION)
        deadline = monotonic() + SOON_S
        while not Path(may_end).exists() and monotonic() < deadline:
            sleep(0.05)

    options = PipelineOptions(
        [
            "--runner=SparkPortableRunner",
            f"--job_endpoint={server}",
            f"--extra_package={file}",
        ]
    )
    pipeline = beam.Pipeline(options=options)
    _ = pipeline | beam.Impulse() | beam.Map(look)
    result = pipeline.run()
    deadline = time.monotonic() + SOON_S
    while not began.exists():
        assert time.monotonic() < deadline
        assert result.state not in (PipelineState.FAILED, PipelineState.DONE)
        time.sleep(0.1)
    lying = store.objects()
    assert lying
    assert all(name.startswith("staging/beam-staged-") for name in lying)
    may_end.touch()
    assert result.wait_until_finish() == PipelineState.DONE
    assert began.read_text() == "3.5"
    while store.objects():  # the server deletes them after the end of the job
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("s3://no-such-bucket/staging", "cannot write s3://no-such-bucket/staging"),
        ("ftp://host/staging", "is none of s3://"),
    ],
)
def test_a_store_that_cannot_be_written_is_named_at_once(
    store: ObjectStore, location: str, problem: str
) -> None:
    command = [sys.executable, "-m", "beam_spark_runner", "--job_port=0", "--artifact_port=0"]
    ended = subprocess.run(
        [*command, f"--artifacts_dir={location}"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=SOON_S,
    )
    assert ended.returncode == 2
    # Beam's client may have logged a traceback before.
    (line,) = [each for each in ended.stderr.splitlines() if each.startswith("error: ")]
    assert "--artifacts_dir" in line
    assert problem in line
