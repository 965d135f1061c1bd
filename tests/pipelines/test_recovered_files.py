"""Files for SDK harnesses of a batch job that is continued."""

import os
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import REUSED_PROCESS
from tests.pipelines.recoverable import Job


def test_a_later_start_uses_the_files_of_the_first_one(spark_session: Any, tmp_path: Path) -> None:
    staged, obstacle = tmp_path / "colour.txt", tmp_path / "obstacle"
    staged.write_text("green")
    obstacle.touch()

    def colour(_: Any) -> str:
        if obstacle.exists():
            raise ValueError("not now")
        return Path(os.environ["SEMI_PERSISTENT_DIRECTORY"], "staged", "colour.txt").read_text()

    def build(p: beam.Pipeline, out: Path) -> None:
        colours = p | beam.Create([1]) | beam.Reshuffle() | beam.Map(colour)
        colours | beam.io.WriteToText(str(out / "colours"))

    job = Job(spark_session, tmp_path, build, *REUSED_PROCESS, f"--files_to_stage={staged}")
    with pytest.raises(BundleFailedError, match="not now"):
        job.start()
    assert list(job.own.glob("files/*"))
    obstacle.unlink()
    staged.write_text("red")
    job.start()
    assert job.lines() == ["green"]
    assert job.names() == []
