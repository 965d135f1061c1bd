"""Jobs of servers that are killed, suspended, or lose their Spark: they continue."""

import contextlib
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import psutil
import pytest
from apache_beam.metrics import Metrics, MetricsFilter

from tests.harness.processes import wait_for
from tests.harness.test_job_server import CLIENTS, Server

pytestmark = [
    pytest.mark.grpc,
    pytest.mark.slow,
    # Harnesses of a client with LOOPBACK, whose server is killed.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]

RECOVERY = "--batch_job_recovery"


def free_port() -> int:
    """Return a port that no client's connection can take while no server listens at it."""
    while True:
        port = random.randrange(20_000, 32_768)  # below those that the system hands out
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Server]]:
    """Start one server after another, at the same port and with the same ``--jobs_dir``."""
    port, count = free_port(), 0
    with contextlib.ExitStack() as stack:

        def start_server() -> Server:
            nonlocal count
            count += 1
            folder = tmp_path / f"server {count}"
            folder.mkdir()
            server = Server(folder, f"--job_port={port}", f"--jobs_dir={tmp_path / 'jobs'}")
            stack.callback(server.program.send, signal.SIGKILL)
            return server

        yield start_server


class Steps:
    """A pipeline that waits for the test in its second level.

    Args:
        folder: Where user code and the test write.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.arrived, self._may_go_on = folder / "arrived", folder / "may go on"

    def let_through(self) -> None:
        self._may_go_on.touch()

    def build(self, p: beam.Pipeline) -> None:
        arrived, may_go_on = str(self.arrived), str(self._may_go_on)
        first, written = str(self._folder / "first"), str(self._folder / "written")

        def pair(x: int) -> tuple[int, int]:
            Metrics.counter("user", "first").inc()
            with open(first, "a") as runs:
                runs.write("x")
            return x % 3, x

        def wait(sums: Any) -> Any:
            import time

            Path(arrived).touch()
            while not Path(may_go_on).exists():
                time.sleep(0.05)
            return sums

        def write(sums: Any) -> None:
            with open(written, "a") as lines:
                lines.write(f"{sums}\n")

        pairs = p | beam.Create(range(20)) | beam.Reshuffle() | "pair" >> beam.Map(pair)
        sums = pairs | beam.CombinePerKey(sum) | "wait" >> beam.Map(wait)
        sums | "again" >> beam.Reshuffle() | "write" >> beam.Map(write)

    def check(self, result: Any, jobs: Path) -> None:
        (first,) = result.metrics().query(MetricsFilter().with_name("first"))["counters"]
        assert first.committed == 20
        assert (self._folder / "first").read_text() == "x" * 20  # what has finished is not repeated
        lines = (self._folder / "written").read_text().splitlines()
        assert sorted(lines) == ["(0, 63)", "(1, 70)", "(2, 57)"]
        assert sorted(left.suffix for left in jobs.iterdir()) == [".ended", ".server"]


class Waiting:
    """A thread that waits for the end of a pipeline."""

    def __init__(self, result: Any) -> None:
        self._result = result
        self._state: str | None = None
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def _wait(self) -> None:
        self._state = self._result.wait_until_finish()

    def state(self) -> str | None:
        self._thread.join(240)
        return self._state


def check_the_end(server: Server, steps: Steps, result: Any, folder: Path) -> None:
    """Check what the last server has done, and end it."""
    steps.check(result, folder / "jobs")
    server.program.send(signal.SIGTERM)
    assert server.program.end(60).code == 0


def test_a_client_waits_for_the_next_server(start: Callable[[], Server], tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    server = start()
    result = server.submit(steps.build, RECOVERY, *CLIENTS["SparkPortableRunner in LOOPBACK"])
    waiting = Waiting(result)
    server.program.wait_for(steps.arrived)
    server.program.send(signal.SIGKILL)
    server.program.end(120, jvm_was_killed=True)

    steps.arrived.unlink()
    server = start()  # which is suspended
    server.program.wait_for(steps.arrived)
    server.program.send(signal.SIGTERM)
    ended = server.program.end(60)
    assert ended.code == 0
    assert f"{result.job_id} is suspended" in ended.err

    steps.let_through()
    server = start()
    assert waiting.state() == "DONE"
    check_the_end(server, steps, result, tmp_path)


def test_a_job_outlives_its_spark(start: Callable[[], Server], tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    server = start()
    result = server.submit(steps.build, RECOVERY, *CLIENTS["SparkPortableRunner"])
    waiting = Waiting(result)
    server.program.wait_for(steps.arrived)
    steps.arrived.unlink()
    server.program.send(signal.SIGUSR1)  # the application is lost
    server.program.wait_for(steps.arrived)
    steps.arrived.unlink()
    for each in psutil.Process(server.program.pid).children(recursive=True):
        if each.name() == "java":
            each.kill()
    ended = server.program.end(120, jvm_was_killed=True)
    assert ended.code == 1
    lost = "the Spark application has ended, and another one is started"
    assert f"{lost}: the job continues after 3 of 5 Spark jobs" in ended.err
    assert f"{result.job_id} is suspended" in ended.err

    steps.let_through()
    server = start()
    assert waiting.state() == "DONE"
    check_the_end(server, steps, result, tmp_path)


@pytest.mark.rare
def test_the_job_of_a_client_that_gives_up_ends(
    start: Callable[[], Server], tmp_path: Path
) -> None:
    steps = Steps(tmp_path)
    server = start()
    result = server.submit(steps.build, RECOVERY, *CLIENTS["PortableRunner in PROCESS"])
    server.program.wait_for(steps.arrived)
    server.program.send(signal.SIGKILL)
    with pytest.raises(grpc.RpcError, match="UNAVAILABLE"):  # Beam's own client does
        result.wait_until_finish()
    server.program.end(120, jvm_was_killed=True)
    steps.let_through()
    server = start()
    wait_for(lambda: result.state == "DONE", 120)
    check_the_end(server, steps, result, tmp_path)
