"""Airflow's operator for Beam runs a pipeline on this runner, by ``dag.test()``.

The operator starts the pipeline in another process, with the runner's name. So the runner that
the plugin installs in this process has no part in these tests, and they run once.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PROGRAM = """
import argparse
import re
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

parser = argparse.ArgumentParser()
parser.add_argument("--input")
parser.add_argument("--output")
given, flags = parser.parse_known_args()
with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
    (
        pipeline
        | beam.io.ReadFromText(given.input)
        | beam.FlatMap(lambda line: re.findall(r"[a-z]+", line))
        | beam.combiners.Count.PerElement()
        | beam.MapTuple(lambda word, count: f"{word} {count}")
        | beam.io.WriteToText(given.output)
    )
"""
DAG = """
import json
import sys
from datetime import datetime
from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.sdk import DAG

given = json.loads(sys.argv[1])
with DAG("words", start_date=datetime(2026, 1, 1), schedule=None) as dag:
    BeamRunPythonPipelineOperator(task_id="words", py_interpreter=sys.executable, **given)

if __name__ == "__main__":
    print("state:", dag.test().state)
"""
LINES = ("the cat and the dog", "and the bird")


@pytest.mark.parametrize(
    ("runner", "options"),
    [
        ("SparkPortableRunner", {"spark_master_url": "in-process"}),
        ("SparkPortableRunner", {"spark_master_url": "local[2]"}),
        ("FnApiRunner", {}),
    ],
    ids=["in process", "on Spark", "FnApiRunner"],
)
def test_operator(runner: str, options: dict[str, str], tmp_path: Path) -> None:
    said = _run_dag(tmp_path, runner, options)
    assert "state: success" in said
    words = Counter(" ".join(LINES).split())
    expected = [f"{word} {count}" for word, count in words.items()]
    files = tmp_path.glob("out-*")
    assert sorted(line for file in files for line in file.read_text().split("\n") if line) == (
        sorted(expected)
    )


def test_failure(tmp_path: Path) -> None:
    options = {"spark_master_url": "in-process", "input": f"{tmp_path}/missing"}
    said = _run_dag(tmp_path, "SparkPortableRunner", options)
    assert "state: failed" in said
    assert "No files found based on the file pattern" in said


def _run_dag(folder: Path, runner: str, options: dict[str, str]) -> str:
    """Run a DAG of one task in an Airflow of its own; return what it says."""
    (folder / "in.txt").write_text("\n".join(LINES))
    (folder / "words.py").write_text(PROGRAM)
    (folder / "dag.py").write_text(DAG)
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "no_dags"),
    }
    airflow = (sys.executable, "-m", "airflow")
    subprocess.run([*airflow, "db", "migrate"], env=environment, check=True, capture_output=True)
    given = {
        "py_file": str(folder / "words.py"),
        "runner": runner,
        "pipeline_options": {
            "input": str(folder / "in.txt"),
            "output": str(folder / "out"),
            **options,
        },
    }
    done = subprocess.run(
        [sys.executable, str(folder / "dag.py"), json.dumps(given)],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout
