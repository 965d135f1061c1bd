"""A job server that is killed again and again: its streams and batch jobs all continue."""

import contextlib
import os
import random
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

from tests.harness.processes import lasting_port, wait_for
from tests.harness.test_job_server import CLIENTS, Server
from tests.pipelines.served_streams import Numbers

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(7200)]

JOBS = int(os.environ.get("RESUMED_JOBS", "4"))
KILLS = int(os.environ.get("RESUME_KILLS", "2"))
SOON_S = 600.0
STEP = 20
"""By how many numbers each stream continues between two kills."""


class Batch:
    """A batch job with recovery, whose second level waits for the test."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def build(self, p: beam.Pipeline) -> None:
        folder = str(self._folder)

        def first(number: int) -> tuple[int, int]:
            with open(f"{folder}/first", "a") as runs:
                runs.write("x")
            return number % 3, number

        def wait(sums: Any) -> Any:
            import time

            while not Path(folder, "may continue").exists():
                time.sleep(0.1)
            return sums

        def write(sums: Any) -> None:
            with open(f"{folder}/written", "a") as lines:
                lines.write(f"{sums}\n")

        pairs = p | beam.Create(range(20)) | beam.Reshuffle() | "first" >> beam.Map(first)
        sums = pairs | beam.CombinePerKey(sum) | "wait" >> beam.Map(wait)
        sums | "again" >> beam.Reshuffle() | "write" >> beam.Map(write)

    def let_through(self) -> None:
        (self._folder / "may continue").touch()

    def check(self) -> None:
        lines = (self._folder / "written").read_text().splitlines()
        assert sorted(lines) == ["(0, 63)", "(1, 70)", "(2, 57)"]


class Servers:
    """One server after another at the same port, with the same ``--jobs_dir``."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._port, self.count = folder, lasting_port(), 0

    @contextlib.contextmanager
    def next(self) -> Iterator[Server]:
        self.count += 1
        folder = self._folder / f"server {self.count}"
        folder.mkdir()
        server = Server(
            folder,
            f"--job_port={self._port}",
            f"--jobs_dir={self._folder / 'jobs'}",
            f"--max_concurrent_jobs={JOBS}",
            "--spark_class_archive=off",
        )
        try:
            yield server
        finally:
            server.program.send(signal.SIGKILL)
            server.program.end(120, jvm_was_killed=True)


def ids_on(server: Server) -> list[str]:
    with grpc.insecure_channel(server.url) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        answer = stub.GetJobs(beam_job_api_pb2.GetJobsRequest())
    return [job.job_id for job in answer.job_info]


def states_on(server: Server, job_id: str) -> list[str]:
    """Return all states of a job that has ended."""
    request = beam_job_api_pb2.GetJobStateRequest(job_id=job_id)
    with grpc.insecure_channel(server.url) as channel:
        stream = beam_job_api_pb2_grpc.JobServiceStub(channel).GetStateStream(request)
        name = beam_job_api_pb2.JobState.Enum.Name
        return [name(event.state) for event in stream]


def test_kills_of_the_server_amid_streams_and_batch_jobs(tmp_path: Path) -> None:
    chance = random.Random(f"{JOBS} {KILLS}")
    streams = [Numbers(tmp_path / f"stream {n}", STEP * (KILLS + 1)) for n in range(JOBS - 1)]
    batch = Batch(tmp_path / "batch")
    servers = Servers(tmp_path)
    flags = [*CLIENTS["SparkPortableRunner"], "--parallelism=2"]
    with ThreadPoolExecutor(JOBS) as threads:
        with servers.next() as server:
            results = [server.submit(each.build, *flags) for each in streams]
            results.append(server.submit(batch.build, *flags, "--batch_job_recovery"))
            ids = [result.job_id for result in results]
            ends = [threads.submit(result.wait_until_finish) for result in results]
            let_continue(streams, 1, chance)
        for kill in range(1, KILLS):
            with servers.next() as server:
                let_continue(streams, kill + 1, chance)
        with servers.next() as server:
            root = server.metrics_url.removesuffix("/metrics")
            assert urllib.request.urlopen(f"{root}/readyz", timeout=60).read() == b"ok\n"
            assert ids_on(server) == ids
            batch.let_through()
            for each in streams:
                each.let_through()
            assert [end.result(SOON_S) for end in ends] == ["DONE"] * JOBS
            for each, result in zip(streams, results, strict=False):
                each.check()
                (seen,) = result.metrics().query(MetricsFilter().with_name("seen"))["counters"]
                assert seen.committed == each.most
            batch.check()
            for job_id in ids:
                states = states_on(server, job_id)
                assert states.count("RUNNING") <= servers.count
                assert states.count("DONE") == 1
            left = sorted(each.suffix for each in (tmp_path / "jobs").iterdir())
            assert left == ["", *[".ended"] * JOBS, ".server"]
            assert list((tmp_path / "jobs" / "checkpoints").iterdir()) == []


def let_continue(streams: list[Numbers], times: int, chance: random.Random) -> None:
    """Let all streams continue, and wait until some of them have done so; then the server dies."""
    before = [len(each.notes()) for each in streams]
    for each in streams:
        each.let_through(STEP * times)
    some = chance.sample(range(len(streams)), max(1, len(streams) // 2))
    more = chance.randint(1, STEP // 2)
    wait_for(
        lambda: all(len(streams[n].notes()) >= before[n] + more for n in some), timeout_s=SOON_S
    )
