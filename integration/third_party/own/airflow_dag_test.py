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
from pathlib import Path
from airflow.providers.apache.beam.operators.beam import BeamRunPythonPipelineOperator
from airflow.sdk import DAG

given = json.loads(Path(__file__).with_name("given.json").read_text())
with DAG("words", start_date=datetime(2026, 1, 1), schedule=None) as dag:
    BeamRunPythonPipelineOperator(task_id="words", py_interpreter=sys.executable, **given)

if __name__ == "__main__":
    print("state:", dag.test().state)
"""
LINES = ("the cat and the dog", "and the bird")


class Airflow:
    """An Airflow with a separate database, and one DAG.

    Args:
        folder: For it alone.
    """

    def __init__(self, folder: Path) -> None:
        self._dags = folder / "dags"
        self._dags.mkdir()
        self._environment = {
            **os.environ,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags),
        }
        (self._dags / "dag.py").write_text(DAG)
        migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(migrate, env=self._environment, check=True, capture_output=True)

    def run_dag(self, folder: Path, runner: str, options: dict[str, str]) -> str:
        """Run the DAG, with its files in a separate folder; return what Airflow says."""
        (folder / "in.txt").write_text("\n".join(LINES))
        (folder / "words.py").write_text(PROGRAM)
        files = {"input": str(folder / "in.txt"), "output": str(folder / "out")}
        given = {
            "py_file": str(folder / "words.py"),
            "runner": runner,
            "pipeline_options": {**files, **options},
        }
        (self._dags / "given.json").write_text(json.dumps(given))
        done = subprocess.run(
            [sys.executable, str(self._dags / "dag.py")],
            env=self._environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout)
        return done.stdout


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Airflow:
    return Airflow(tmp_path_factory.mktemp("airflow"))


@pytest.mark.parametrize(
    ("runner", "options"),
    [
        ("SparkPortableRunner", {"spark_master_url": "in-process"}),
        ("SparkPortableRunner", {"spark_master_url": "local[2]"}),
        ("FnApiRunner", {}),
    ],
    ids=["in process", "on Spark", "FnApiRunner"],
)
def test_operator(airflow: Airflow, runner: str, options: dict[str, str], tmp_path: Path) -> None:
    said = airflow.run_dag(tmp_path, runner, options)
    assert "state: success" in said
    words = Counter(" ".join(LINES).split())
    expected = [f"{word} {count}" for word, count in words.items()]
    files = tmp_path.glob("out-*")
    assert sorted(line for file in files for line in file.read_text().split("\n") if line) == (
        sorted(expected)
    )


def test_failure(airflow: Airflow, tmp_path: Path) -> None:
    options = {"spark_master_url": "in-process", "input": f"{tmp_path}/missing"}
    said = airflow.run_dag(tmp_path, "SparkPortableRunner", options)
    assert "state: failed" in said
    assert "No files found based on the file pattern" in said
