"""Jobs of a server without Spark: what they do when it is their turn, a test says."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner.core.errors import SparkSetupError
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.options.server_options import ServerConfig
from tests.unit.portable.pipelines import proto_of

SOON_S = 60.0


class Gate:
    """In place of Spark: each job waits until it is let through, and then fails."""

    def __init__(self) -> None:
        self._begun = threading.Semaphore(0)
        self._let_through = threading.Semaphore(0)
        self.pools: list[str] = []

    def __call__(self, config: Any, pool: str) -> Any:
        self.pools.append(pool)
        self._begun.release()
        self._let_through.acquire()
        raise SparkSetupError("there is no Spark.", "Start one.")

    def wait_for(self, jobs: int) -> None:
        for _ in range(jobs):
            assert self._begun.acquire(timeout=SOON_S)

    def let_through(self, jobs: int) -> None:
        self._let_through.release(jobs)


@contextmanager
def served(config: ServerConfig) -> Iterator[tuple[Jobs, Gate]]:
    gate = Gate()
    jobs = Jobs(config, gate)
    try:
        yield jobs, gate
    finally:
        gate.let_through(1_000)
        assert jobs.end_all(SOON_S)
        jobs.delete_staged_files()


def one_step(pipeline: beam.Pipeline) -> None:
    pipeline | beam.Create([1]) | "step" >> beam.Map(str)


def request(
    build: Callable[[beam.Pipeline], object] = one_step, name: str = "name"
) -> beam_job_api_pb2.PrepareJobRequest:
    return beam_job_api_pb2.PrepareJobRequest(job_name=name, pipeline=proto_of(build))


def states_of(job: Any) -> list[str]:
    return [each.state for each in job.record.states.follow()]
