"""Packages of a pipeline on separate executors: by broadcast and by shared storage."""

import tempfile
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.runner import SparkPortableRunner
from integration.cluster import wait_for_executors
from tests.user_packages import sdist

NAME = "packed_for_a_test"


def seen(session: Any, *flags: str) -> set[tuple[str, str]]:
    """Return all that tasks see: the version of the package, and the environment it is in."""

    def look(_: int) -> str:
        import sys
        import time

        time.sleep(0.2)  # so that every slot gets some
        return f"{__import__('packed_for_a_test').VERSION} {sys.prefix}"

    with tempfile.TemporaryDirectory() as folder:
        options = PipelineOptions(list(flags))
        with beam.Pipeline(SparkPortableRunner(session), options=options) as p:
            looked = p | beam.Create(range(60)) | beam.Reshuffle() | beam.Map(look)
            _ = looked | beam.Distinct() | beam.io.WriteToText(f"{folder}/seen")
        lines = [path.read_text().splitlines() for path in Path(folder).glob("seen*")]
    return {(line.split()[0], line.split()[1]) for each in lines for line in each}


@pytest.mark.cluster
@pytest.mark.parametrize("storage", ["executors", "shared storage"])
def test_each_executor_makes_one_environment(
    cluster_session: Any, tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_executors(cluster_session)
    workers = cluster_session.sparkContext.environment
    monkeypatch.setitem(workers, "PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    version = f"1.{len(storage)}"
    file = sdist(tmp_path, NAME, version, f"VERSION = '{version}'\n")
    flags = [f"--extra_package={file}", "--parallelism=12"]
    if storage == "shared storage":
        flags.append(f"--temp_location={tmp_path / 'shared'}")
    found = seen(cluster_session, *flags)
    assert {version for version, _ in found} == {version}
    assert len({prefix for _, prefix in found}) == len(found) == 2, "one for each executor"
    assert seen(cluster_session, *flags) == found, "and they are used again"
