"""A job server that is killed and started again: ``python -m benchmarks.resumed``.

Measures the time from the open port of the next server until the job that it continues is RUNNING,
and until user code of the job runs.
"""

import argparse
import contextlib
import functools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from beam_spark_runner import SparkPortableRunner

_POLL_S = 0.01
_RUNS = 3


def _wait_for_end(element: int, folder: str) -> int:
    """Note that user code runs, and wait until the benchmark lets it end."""
    Path(folder, f"began-{time.time()}").touch()
    while not Path(folder, "end").exists():
        time.sleep(_POLL_S)
    return element


@contextlib.contextmanager
def _server(jobs: Path) -> Iterator[tuple[str, float]]:
    """Run a job server until it is killed; yield its address, and when it was known."""
    command = [sys.executable, "-m", "beam_spark_runner", "--job_port=0", "--artifact_port=0"]
    flags = ["--spark_master_url=local[2]", "--spark_conf=spark.ui.enabled=false"]
    server = subprocess.Popen(
        [*command, *flags, f"--jobs_dir={jobs}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        said = server.stdout.readline()
        if not said:
            raise RuntimeError(f"the job server has not started: exit status {server.wait()}")
        yield said.split()[3].rstrip(","), time.time()
    finally:
        server.kill()
        server.wait()


def _begun(folder: Path) -> list[float]:
    return sorted(float(each.name.partition("-")[2]) for each in folder.glob("began-*"))


def _wait(folder: Path, since: float) -> float:
    """Wait until user code has begun after a time; return when it has."""
    while True:
        later = [each for each in _begun(folder) if each > since]
        if later:
            return later[0]
        time.sleep(_POLL_S)


def resume() -> tuple[float, float]:
    """Return the seconds until a continued job is RUNNING, and until its user code runs."""
    with tempfile.TemporaryDirectory(prefix="beam-benchmarks-") as scratch:
        folder = Path(scratch)
        with _server(folder / "jobs") as (address, _):
            flags = [f"--job_endpoint={address}", "--batch_job_recovery", "--progress=off"]
            pipeline = beam.Pipeline(runner=SparkPortableRunner(), options=PipelineOptions(flags))
            waits = functools.partial(_wait_for_end, folder=scratch)
            pipeline | beam.Create([1]) | beam.Reshuffle() | beam.Map(waits)
            job_id = str(pipeline.run().job_id)
            killed = _wait(folder, 0.0)
        with _server(folder / "jobs") as (address, opened), grpc.insecure_channel(address) as to:
            jobs = beam_job_api_pb2_grpc.JobServiceStub(to)
            request = beam_job_api_pb2.GetJobStateRequest(job_id=job_id)
            while jobs.GetState(request).state != beam_job_api_pb2.JobState.RUNNING:
                time.sleep(_POLL_S)
            running_s = time.time() - opened
            return running_s, _wait(folder, killed) - opened


def main() -> None:
    """Print the median of some runs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.resumed", description=__doc__)
    parser.add_argument("--runs", type=int, default=_RUNS)
    found = [resume() for _ in range(parser.parse_args().runs)]
    running_s, works_s = (statistics.median(each) for each in zip(*found, strict=True))
    print(
        f"from the open port of the next server: RUNNING after {running_s:.2f} s, "
        f"user code runs after {works_s:.2f} s (medians of {len(found)})"
    )


if __name__ == "__main__":
    main()
