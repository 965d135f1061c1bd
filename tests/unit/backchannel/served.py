"""The backchannel for tests: its driver's end, and messages."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated.backchannel_pb2 import WorkerFrame
from beam_spark_runner.backchannel.driver import BackchannelServer

Heard = list[tuple[str, WorkerFrame]]

LOOPBACK = ("127.0.0.1", 0)


@contextlib.contextmanager
def serving(way: str, folder: Path, heard: Heard) -> Iterator[BackchannelServer]:
    server = BackchannelServer(
        "job",
        lambda worker, frame: heard.append((worker, frame)),
        listen=LOOPBACK if way == "socket" else None,
        advertise="127.0.0.1",
        folder=folder if way == "files" else None,
    )
    try:
        yield server
    finally:
        server.close()


def messages(heard: Heard) -> list[str]:
    return [
        beam_fn_api_pb2.LogEntry.FromString(coded).message
        for _, frame in heard
        for coded in frame.log_entries
    ]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def entry(text: str) -> beam_fn_api_pb2.LogEntry:
    return beam_fn_api_pb2.LogEntry(message=text, severity=beam_fn_api_pb2.LogEntry.Severity.INFO)


class Callbacks:
    """Records what has become of them."""

    def __init__(self) -> None:
        self.happened: list[str] = []

    def run(self) -> None:
        self.happened.append("run")

    def drop(self) -> None:
        self.happened.append("dropped")
