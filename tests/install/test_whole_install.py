"""``pip install .`` in an empty environment, with the versions that pip chooses."""

import os
import subprocess
import venv
from pathlib import Path

import pytest

from tests.install.test_registration import ROOT, source_in

pytestmark = [pytest.mark.slow, pytest.mark.rare]

FRAMES = """
import sys
import apache_beam as beam
from apache_beam.dataframe.convert import to_dataframe, to_pcollection
from apache_beam.options.pipeline_options import PipelineOptions

with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as pipeline:
    rows = pipeline | beam.Create([("a", 1), ("b", 2), ("a", 3)]) | beam.Select(
        word=lambda row: str(row[0]), count=lambda row: int(row[1]))
    sums = to_dataframe(rows).groupby("word").sum()
    to_pcollection(sums, include_indexes=True) | beam.Map(lambda row: print(*row, flush=True))
"""


def test_what_readme_shows_and_a_data_frame(tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"

    def run(*command: str) -> str:
        done = subprocess.run(
            [python, *command],
            cwd=tmp_path,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # where Spark sends what its workers print
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:]
        return done.stdout

    run("-m", "pip", "install", "--quiet", str(source_in(tmp_path)))
    run("-m", "pip", "check")
    here = ("--runner=SparkPortableRunner", "--spark_master_url=local[2]")
    counts = tmp_path / "counts"
    words = ("-m", "apache_beam.examples.wordcount", f"--input={ROOT / 'README.md'}")
    run(*words, f"--output={counts}", *here)
    lines = [line for each in tmp_path.glob("counts-*") for line in each.read_text().splitlines()]
    assert "SparkPortableRunner: " in "\n".join(lines)
    (tmp_path / "frames.py").write_text(FRAMES)
    assert {"a 4", "b 2"} <= {*run("frames.py", *here).splitlines()}
