"""Starts, and small jobs in a process that has started: ``python -m benchmarks.start [CASE …]``.

cold: a program of three elements, from the shell to its exit, with and without a class archive, and
the same by hand: PySpark's ``mapInArrow`` over a range, an exchange, ``collect``. Programs take
turns. CPU seconds are those of all their processes (Linux only).

warm: further runs in one process, see ``benchmarks.start.warm``, each kind in a separate process;
the processes take turns. The best run of each counts. "built": what Beam does before a runner gets
the pipeline.

tests: five tests with ``TestPipeline`` in one process of pytest, on Spark, in the process of the
tests, and on ``FnApiRunner``.
"""

import argparse
import ctypes
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

_PR_SET_CHILD_SUBREAPER = 36

_OURS = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as pipeline:
    pairs = pipeline | beam.Create([1, 2, 3]) | beam.Map(lambda number: (number, 1))
    pairs | beam.GroupByKey() | beam.Map(str)
"""
_BY_HAND = """
import pyarrow as pa
from pyspark.sql import SparkSession

def pairs(batches):
    for batch in batches:
        yield pa.record_batch({"key": batch.column(0), "value": batch.column(0)})

def texts(batches):
    for batch in batches:
        yield pa.record_batch({"text": pa.array(map(str, batch.to_pylist()), pa.string())})

spark = SparkSession.builder.master("local[2]").getOrCreate()
moved = spark.range(3).mapInArrow(pairs, "key long, value long").repartition(2, "key")
assert len(moved.mapInArrow(texts, "text string").collect()) == 3
spark.stop()
"""
_TESTS = """
import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that, equal_to

@pytest.mark.parametrize("number", range(5))
def test(number):
    options = PipelineOptions(FLAGS)
    with TestPipeline(options=options) as pipeline:
        found = pipeline | beam.Create([1, 2, 3]) | beam.Map(lambda each: each + number)
        assert_that(found, equal_to([1 + number, 2 + number, 3 + number]))
"""
_PAIRS = (
    ("three", "three, given session"),
    ("three", "three, RDD"),
    ("three", "three, built"),
    ("word count", "word count, RDD"),
    ("word count", "word count, built"),
    ("combines", "combines, FnApiRunner"),
    ("branches", "branches, FnApiRunner"),
)


def _timed(*command: str) -> tuple[float, float]:
    """Run a command; return its seconds, and the CPU seconds of all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began_s = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    took_s = time.monotonic() - began_s
    # Orphans have become children of this process.
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _cold(runs: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    flags = ["--runner=SparkPortableRunner", "--spark_master_url=local[2]", "--progress=off"]
    with tempfile.TemporaryDirectory() as folder:
        ours = (sys.executable, "-c", _OURS, *flags)
        took_s, _ = _timed(*ours, f"--spark_class_archive={folder}")  # waits for the archive
        made = list(Path(folder).rglob("*.jsa"))
        print(f"a program, {took_s:.1f} s, that leaves an archive of {made[0].stat().st_size:,} B")
        programs = {
            "ours, with an archive": (*ours, f"--spark_class_archive={folder}"),
            "ours, without": (*ours, "--spark_class_archive=off"),
            "by hand": (sys.executable, "-c", _BY_HAND),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
        for _ in range(runs):
            for name, command in programs.items():
                found[name].append(_timed(*command))
    for name, each in found.items():
        walls, cpus = zip(*each, strict=True)
        peers = [cpu for _, cpu in found["by hand"]]
        print(
            f"cold, {name}: {median(walls):.1f} s, CPU {median(cpus):.1f} s "
            f"({median(cpus) / median(peers):.2f} of that by hand)"
        )


def _warm(name: str, runs: int) -> tuple[float, str]:
    command = [sys.executable, "-m", "benchmarks.start.warm", name, str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    times = [float(line) for line in lines if not line.startswith("jobs")]
    jobs = next((line for line in lines if line.startswith("jobs")), "")
    return min(times[1:]), jobs.replace("jobs", "Spark jobs:")


def _pairs(turns: int, runs: int) -> None:
    for ours, peer in _PAIRS:
        pairs = [(_warm(ours, runs), _warm(peer, runs)) for _ in range(turns)]
        mine, jobs = min(one for one, _ in pairs)
        theirs, _ = min(one for _, one in pairs)
        print(f"warm, {ours}: {mine:.2f} s; {peer}: {theirs:.2f} s; {mine / theirs:.2f}. {jobs}")


def _tests() -> None:
    ours = "--runner=SparkPortableRunner"
    for name, flags in {
        "local[2]": [ours, "--spark_master_url=local[2]"],
        "in-process": [ours, "--spark_master_url=in-process"],
        "FnApiRunner": ["--runner=FnApiRunner"],
    }.items():
        times = _five_tests(flags)
        print(f"tests, {name}:", ", ".join(f"{each:.2f} s" for each in times))


def _five_tests(flags: Sequence[str]) -> list[float]:
    """Return the seconds that each of five tests with these options takes in one process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_five.py"
        file.write_text(f"FLAGS = {flags!r}\n{_TESTS}")
        command = [sys.executable, "-m", "pytest", "-q", "--durations=0", "-vv", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    found = re.findall(r"([\d.]+)s call .*test\[(\d)\]", done.stdout)
    times = {int(number): float(took) for took, number in found}
    return [times[number] for number in sorted(times)]


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=["cold", "warm", "tests", []])
    parser.add_argument("--runs", type=int, default=3, help="turns of each program")
    parser.add_argument("--warm_runs", type=int, default=8, help="in each process")
    given = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable  # as in an activated environment
    cases = given.cases or ["cold", "warm", "tests"]
    if "cold" in cases:
        _cold(given.runs)
    if "warm" in cases:
        _pairs(given.runs, given.warm_runs)
    if "tests" in cases:
        _tests()


if __name__ == "__main__":
    main()
