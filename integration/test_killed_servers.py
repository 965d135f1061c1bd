"""Streaming jobs of a job server that is killed: their client submits them to the next server."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.core.errors import JobServerLostError
from integration.pipelines import counters
from integration.stream_kills import StreamStrikes, check_leftovers
from integration.streams import KEYS, SINK, check_files, sources_to_files
from integration.strikes import Event, Victim
from integration.waiting import newest_epoch
from tests.harness.test_job_server import Server
from tests.spark.asking import Asking

pytestmark = [pytest.mark.grpc, pytest.mark.timeout(1800)]

COUNT = 96
KILLS = 3


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Start a server whose name is given; none outlives the test."""
    with contextlib.ExitStack() as stack:

        def start_server(name: str) -> Server:
            folder = tmp_path / name
            folder.mkdir()
            server = Server(folder)
            stack.callback(server.program.send, signal.SIGKILL)
            return server

        yield start_server


def _submit(server: Server, folder: Path) -> Any:
    """Submit the same pipeline as always; its user code runs in processes."""
    options = [
        f"--job_endpoint={server.url}",
        f"--checkpoint_dir={folder / 'checkpoints'}",
        "--batch_interval_millis=100",
    ]
    pipeline = beam.Pipeline(runner=Asking(None, stable=[SINK]), options=PipelineOptions(options))
    passes = StreamStrikes(os.devnull, Event.START, Victim.DRIVER, 1)  # without a blow
    sources_to_files(pipeline, COUNT, str(folder / "out"), [passes] * 3)
    return pipeline.run()


def test_a_job_continues_on_the_next_server(start: Callable[[str], Server], tmp_path: Path) -> None:
    chance, checkpoints = random.Random(7), tmp_path / "checkpoints"
    (tmp_path / "out").mkdir()
    for nth in range(KILLS):
        program = (server := start(f"server {nth}")).program
        until = newest_epoch(checkpoints) + 1 + chance.randrange(3)
        result = _submit(server, tmp_path)
        assert program.wait_until(lambda until=until: newest_epoch(checkpoints) >= until)  # type: ignore[misc]
        time.sleep(chance.random() / 2)  # the moment is chance's
        program.send(signal.SIGKILL)
        with pytest.raises(JobServerLostError):
            result.wait_until_finish()
        program.end(120, jvm_was_killed=True)  # whoever is killed leaves its temporary files
    server = start("last server")
    result = _submit(server, tmp_path)
    assert result.wait_until_finish() == "DONE"
    assert counters(result) == {"elements": KEYS * COUNT}
    check_files(tmp_path / "out", COUNT)
    check_leftovers(checkpoints)
    server.program.send(signal.SIGTERM)
    assert server.program.end(60).code == 0
