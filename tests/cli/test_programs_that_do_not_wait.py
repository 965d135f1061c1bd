"""Programs that end without waiting for their pipeline: it finishes all the same."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import apache_beam as beam
import sys

def note(number, path):
    with open(path, "a") as file:  # what workers print may come too late
        file.write(f"{number}\\n")
    return number

path, *flags = sys.argv[1:]
pipeline = beam.Pipeline(argv=["--runner=SparkPortableRunner", "--progress=off", *flags])
numbers = pipeline | beam.Create([1, 2]) | beam.Reshuffle() | beam.Map(note, path)
pipeline.run()
print("the program has come to its end", flush=True)
"""
IN_PROCESS = "--spark_master_url=in-process"
ON_SPARK = "--spark_master_url=local[2]"
LOOPBACK = "--environment_type=LOOPBACK"
KEPT = (
    "--environment_type=PROCESS",
    "--environment_config={}",
    "--environment_cache_millis=6000000",
)


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param((IN_PROCESS,), id="in-process"),
        pytest.param((IN_PROCESS, "--streaming"), id="in-process, in epochs"),
        pytest.param((IN_PROCESS, LOOPBACK), id="in-process, LOOPBACK"),
        pytest.param((IN_PROCESS, *KEPT), id="in-process, harnesses that are kept"),
        pytest.param(
            (ON_SPARK, "--streaming"),
            id="on Spark, in epochs",
            marks=[pytest.mark.spark, pytest.mark.rare],
        ),
        pytest.param(
            (ON_SPARK, LOOPBACK),
            id="on Spark, LOOPBACK",
            marks=[pytest.mark.spark, pytest.mark.rare],
        ),
    ],
)
def test_the_pipeline_finishes(flags: tuple[str, ...], tmp_path: Path) -> None:
    program, noted = tmp_path / "program.py", tmp_path / "noted"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), str(noted), *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "come to its end" in ended.stdout
    assert sorted(noted.read_text().split()) == ["1", "2"]
