"""Beam's harnesses in the process of a client, whose Spark worker was killed with its server."""

import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

from beam_spark_runner.job.client import lost_harnesses
from tests.harness.processes import wait_for
from tests.harness.test_loopback import WORKER


@pytest.fixture
def unhandled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have the losses of harnesses logged; return what is left to other handlers."""
    found: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    lost_harnesses.log_losses_at_debug()
    lost_harnesses.log_losses_at_debug()
    return found


def test_a_harness_that_has_lost_its_worker_prints_no_traceback(
    unhandled: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, lost_harnesses.__name__)
    url, server = BeamFnExternalWorkerPoolServicer.start()
    root = Path(__file__).parents[2]
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, url], cwd=root, capture_output=True, text=True
    )
    assert worker.stdout == "[b'A']\n", worker.stderr
    wait_for(lambda: len(caplog.records) >= 2)  # of two threads
    server.stop(0)
    assert unhandled == []
    assert {record.levelno for record in caplog.records} == {logging.DEBUG}


def test_other_errors_of_threads_are_handled_as_before(unhandled: list[Any]) -> None:
    def fail() -> None:
        raise ValueError("user code")

    thread = threading.Thread(target=fail, name="read_state")
    thread.start()
    thread.join()
    assert [each.exc_type for each in unhandled] == [ValueError]
