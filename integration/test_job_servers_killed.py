"""Job servers that are killed at any moment: the next one continues, while the client waits."""

import contextlib
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

from integration.batch_driver import COUNTED, PIPELINES, check_lines
from integration.pipelines import counters
from integration.server_deaths import MOMENTS, ORDERS, Noted, Orders
from tests.harness.processes import lasting_port
from tests.harness.test_job_server import Server

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("SERVER_KILLS", "4"))
_PRELUDE = """
from integration.server_deaths import watch_in_server
watch_in_server()
"""
_CLIENTS = {
    "PROCESS": ["--environment_type=PROCESS", '--environment_config={"command":""}'],
    "LOOPBACK": ["--environment_type=LOOPBACK"],
}
_CASES = [("PROCESS", "sums"), ("LOOPBACK", "drawn")]


class Runs:
    """One job, and the servers that run it, one after another at the same port.

    Args:
        folder: For all of it.
        client: Where the client has its user code run.
        name: That of the pipeline.
    """

    def __init__(self, folder: Path, client: str, name: str) -> None:
        self._folder, self._client, self._name = folder, client, name
        self._out = folder / "out"
        self._out.mkdir(parents=True)
        self.orders = Orders(str(folder))
        self._port = lasting_port()
        self._servers = 0

    @contextlib.contextmanager
    def server(self, moment: str = "", nth: int = 0) -> Iterator[Server]:
        """Start the next server, which dies at a moment; see ``Orders``."""
        self._servers += 1
        folder = self._folder / f"server-{self._servers}"
        folder.mkdir()
        self.orders.give(moment, nth)
        server = Server(
            folder,
            f"--job_port={self._port}",
            f"--jobs_dir={self.orders.jobs}",
            "--spark_conf=spark.python.daemon.module=integration.watched_workers",
            "--spark_class_archive=off",
            prelude=_PRELUDE,
            may_die=bool(moment),
            **{ORDERS: str(self._folder)},
        )
        try:
            yield server
        finally:
            server.program.send(signal.SIGKILL)

    def submit(self, server: Server) -> dict[str, int]:
        """Run the pipeline; wait for its end, and return the committed counters."""

        def build(p: beam.Pipeline) -> None:
            PIPELINES[self._name](
                p, self._out, lambda step: f"note {step}" >> beam.ParDo(Noted(str(self._folder)))
            )

        flags = ["--runner=SparkPortableRunner", "--batch_job_recovery", "--parallelism=2"]
        result = server.submit(build, *flags, *_CLIENTS[self._client])
        assert result.wait_until_finish() == "DONE"
        return counters(result)

    def is_killed(self, server: Server, submitted: "Future[Any]") -> bool:
        """Wait until a server has been killed, or the client has seen the end of the job."""
        if server.program.wait_until(submitted.done):
            return False
        ended = server.program.end(60, jvm_was_killed=True)
        assert ended.code == -signal.SIGKILL, ended.err
        return True

    def check(self, server: Server, committed: dict[str, int]) -> None:
        """Check what all servers have made, and end the last one."""
        check_lines(self._name, self._out)
        assert committed == {"elements": COUNTED[self._name]}
        left = [each.suffix for each in Path(self.orders.jobs).iterdir()]
        assert sorted(left) == [".ended", ".server"]
        server.program.send(signal.SIGTERM)
        ended = server.program.end(60)
        assert ended.code == 0, ended.err


@pytest.mark.parametrize(("client", "name"), _CASES)
def test_kills_of_the_server_change_nothing(tmp_path: Path, client: str, name: str) -> None:
    undisturbed = Runs(tmp_path / "undisturbed", client, name)
    with undisturbed.server() as server:
        undisturbed.check(server, undisturbed.submit(server))
    times = undisturbed.orders.moments()
    moments = sorted(times)
    assert moments == sorted(MOMENTS)  # none of them is left out because a file has another name
    chance = random.Random(f"{client} {name} {KILLS}")
    chance.shuffle(moments)
    for number in range(-(-KILLS // len(_CASES))):
        # All of them have their turn; a second server dies at any.
        deaths = [moments[number % len(moments)], chance.choice(["", *moments])]
        runs = Runs(tmp_path / f"job {number}", client, name)
        with ThreadPoolExecutor(1) as threads:
            submitted: Future[dict[str, int]] | None = None
            for moment in [*deaths, ""]:
                nth = chance.randint(1, times[moment]) if moment else 0
                with runs.server(moment, nth) as server:
                    submitted = submitted or threads.submit(runs.submit, server)
                    if not runs.is_killed(server, submitted):
                        runs.check(server, submitted.result())
                        break
