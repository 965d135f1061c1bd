"""What becomes of a job server, and of its jobs, when the JVM of its Spark ends."""

import signal
from pathlib import Path

import psutil
import pytest

from tests.harness.test_job_server import CLIENTS, Server, waits

pytestmark = [pytest.mark.grpc, pytest.mark.slow]


def test_a_server_ends_with_its_spark(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    server = Server(folder)
    result = server.submit(waits(tmp_path), *CLIENTS["SparkPortableRunner"])
    server.program.wait_for(tmp_path / "began")
    (jvm,) = [
        each
        for each in psutil.Process(server.program.pid).children(recursive=True)
        if each.name() == "java"
    ]
    jvm.send_signal(signal.SIGKILL)
    with pytest.raises(RuntimeError, match="Spark's JVM has ended"):
        result.wait_until_finish()
    ended = server.program.end(120, jvm_was_killed=True)
    assert ended.code == 1
    assert "Spark's JVM has ended, and no job can run: the job server ends, too" in ended.err
