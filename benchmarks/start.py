"""The start of Spark with and without a class archive: ``python -m benchmarks.start``.

Programs of three elements take turns. Each is timed from its start to the end of its pipeline, with
the CPU time that its JVM has used by then. Linux only.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_TICKS = slice(11, 13)  # of the fields after the name: CPU time of the process in user and kernel

_PROGRAM = """
import sys
import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from beam_spark_runner.spark.session import jvm_process

with beam.Pipeline(options=PipelineOptions(sys.argv[1:])) as pipeline:
    pairs = pipeline | beam.Create([1, 2, 3]) | beam.Map(lambda number: (number, 1))
    pairs | beam.GroupByKey() | beam.Map(str)
print(open(f"/proc/{jvm_process._running.pid}/stat").read())
"""


def run(archives: str) -> tuple[float, float]:
    """Run a program; return its seconds, and the CPU seconds of its JVM."""
    flags = ["--runner=SparkPortableRunner", "--spark_master_url=local[2]", "--progress=off"]
    began_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *flags, f"--spark_class_archive={archives}"],
        capture_output=True,
        text=True,
        check=True,
    )
    took_s = time.monotonic() - began_s
    ticks = done.stdout.rpartition(")")[2].split()[_TICKS]
    return took_s, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(folder)  # leaves an archive
        began_s = time.monotonic()
        while not (made := list(Path(folder).rglob("*.jsa"))):
            time.sleep(0.5)
        size_mb = made[0].stat().st_size / 1e6
        print(f"the archive was made in {time.monotonic() - began_s:.0f} s; {size_mb:.0f} MB")
        for _ in range(given.runs):
            for name, archives in (("with", folder), ("without", "off")):
                took_s, cpu_s = run(archives)
                print(f"{name} an archive: {took_s:.1f} s, CPU of the JVM {cpu_s:.1f} s")


if __name__ == "__main__":
    main()
