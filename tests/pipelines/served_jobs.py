"""A job server whose jobs run in the tests' own process, and outlive it in its ``--jobs_dir``."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2
from google.protobuf import struct_pb2

from beam_spark_runner.in_process.session import InProcessSession
from beam_spark_runner.job.server.jobs import Jobs
from beam_spark_runner.job.server.served_job import ServedJob
from beam_spark_runner.options.server_options import ServerConfig
from tests.harness.processes import wait_for
from tests.unit.portable.pipelines import proto_of

Build = Callable[[beam.Pipeline], object]
SOON_S = 60.0
VERSIONS = {"this package": "1"}


class ServedSession(InProcessSession):
    """A session of a server.

    Attributes:
        has_lost_spark: What ``has_ended`` returns.
    """

    has_lost_spark = False

    def has_ended(self) -> bool:
        return self.has_lost_spark


class Server:
    """One server.

    Args:
        folder: For ``--jobs_dir`` and staged files.
        versions: The versions of this server.
        jobs: How many jobs run at a time.
        before_open: See the attribute.

    Attributes:
        sessions: All sessions that its jobs have opened.
        on_open: Is called before another one than the first is opened.
        before_open: Is called before each is opened.
    """

    def __init__(
        self,
        folder: Path,
        versions: dict[str, str] | None = None,
        jobs: int = 1,
        before_open: Callable[[], object] = lambda: None,
    ) -> None:
        config = ServerConfig(
            jobs_dir=str(folder / "jobs"),
            artifacts_dir=str(folder / "staged"),
            max_concurrent_jobs=jobs,
        )
        self.sessions: list[ServedSession] = []
        self.on_open: Callable[[], None] = lambda: None
        self.before_open = before_open
        self.jobs = Jobs(config, self._open, versions or VERSIONS)
        self.jobs.resume()

    def _open(self, _: Any, __: str) -> Any:
        self.before_open()
        if self.sessions:
            self.on_open()
        self.sessions.append(ServedSession())
        return self.sessions[-1]

    def submit(self, build: Build, **options: Any) -> ServedJob:
        """Submit a pipeline whose job can be continued."""
        return self.jobs.job(self.jobs.run(self.prepare(build, **options)))

    def prepare(self, build: Build, **options: Any) -> str:
        """Prepare such a pipeline; return the id of the preparation."""
        return self.jobs.prepare(request(build, **options))


def request(build: Build, **options: Any) -> Any:
    """Return what a client sends."""
    given = struct_pb2.Struct()
    given.update({"batch_job_recovery": True, **options})
    pipeline: beam_runner_api_pb2.Pipeline = proto_of(build)
    return beam_job_api_pb2.PrepareJobRequest(
        job_name="tests", pipeline=pipeline, pipeline_options=given
    )


@contextlib.contextmanager
def serving(folder: Path, **settings: Any) -> Iterator[Server]:
    """Serve until the context ends, which suspends the jobs."""
    server = Server(folder, **settings)
    try:
        yield server
    finally:
        assert server.jobs.end_all(SOON_S)
        server.jobs.delete_staged_files()


def state_of(job: ServedJob) -> str:
    """Wait for the end of a job; return its state."""
    assert job.wait(SOON_S)
    return job.record.state


def names_in(folder: Path) -> list[str]:
    """Return the names of all files of jobs in ``--jobs_dir``."""
    jobs = folder / "jobs"
    found = (str(each.relative_to(jobs)) for each in jobs.rglob("*"))
    return sorted(name for name in found if not name.endswith(".server"))


def counters(job: ServedJob) -> dict[str, int]:
    """Return the committed counters of user code."""
    found: Counter[str] = Counter()
    for info in job.metrics().committed:
        if info.urn == "beam:metric:user:sum_int64:v1":
            found[info.labels["NAME"]] += VarIntCoder().decode(info.payload)
    return dict(found)


class Obstacle:
    """Where user code of ``two_levels`` waits, or fails: in another process.

    Args:
        folder: For what this process and user code write.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder

    def let_through(self) -> None:
        """Let user code continue."""
        (self._folder / "may go on").touch()

    def fail(self, *, fails: bool = True) -> None:
        """Have user code fail, or no longer fail."""
        (self._folder / "fails").touch()
        if not fails:
            (self._folder / "fails").unlink()

    def wait_for_user(self) -> None:
        """Wait until user code has arrived."""
        wait_for((self._folder / "has arrived").exists)

    def runs(self) -> int:
        """Return how many elements the first step has processed since the last call."""
        runs = self._folder / "runs"
        if not runs.exists():
            return 0
        count = len(runs.read_text())
        runs.unlink()
        return count

    def two_levels(self, p: beam.Pipeline) -> None:
        """Build a pipeline that is committed once before it arrives."""
        folder = self._folder

        def first(x: int) -> tuple[int, int]:
            with (folder / "runs").open("a") as runs:
                runs.write("x")
            beam.metrics.Metrics.counter("tests", "first").inc()
            return x % 3, x

        def second(pair: Any) -> Any:
            beam.metrics.Metrics.counter("tests", "second").inc()
            (folder / "has arrived").touch()
            while not (folder / "may go on").exists():
                time.sleep(0.01)
            if (folder / "fails").exists():
                raise ValueError("an obstacle")
            return pair

        pairs = p | beam.Create(range(10)) | beam.Reshuffle() | "first" >> beam.Map(first)
        pairs | beam.GroupByKey() | "second" >> beam.Map(second)
