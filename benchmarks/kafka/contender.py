"""Starts the processes of the contenders, and runs queries in them."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.kafka.load import WINDOW_S
from benchmarks.kafka.results import Results
from integration.kafka_broker import Broker

_ROOT = Path(__file__).resolve().parents[2]
OURS, OURS_EXACTLY_ONCE, STRUCTURED = "ours", "ours, transactions", "Structured Streaming"
OURS_TRANSACTIONS_OFF = "ours, transactions off"  # by --delivery_guarantee
PEER = _ROOT / ".venv-structured"
"""A virtual environment with a PySpark whose connector for Kafka is on Maven Central."""
_DELAY_S = 60


@dataclass
class Query:
    """A query that runs, or has run. All attributes but ``results`` are set at its end.

    Attributes:
        results: The counts that it writes.
        first_job_s: The Unix time at which its first Spark job was submitted.
        jobs: The number of its Spark jobs.
        cpu_s: The CPU time of the contender's processes since the query was started, in seconds.
    """

    results: Results
    first_job_s: float = 0.0
    jobs: int = 0
    cpu_s: float = 0.0


class Contender:
    """One side of the comparison: a process with its own Spark, which runs one query at a time.

    Args:
        name: The name of the contender.
        command: The command of its process.
        broker: The broker of the topics.
        folder: The folder for checkpoints.
        settings: Further fields of its tasks.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        broker: Broker,
        folder: Path,
        settings: Mapping[str, Any],
    ) -> None:
        self.name = name
        self._broker, self._folder, self._settings = broker, folder, settings
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    @contextlib.contextmanager
    def query(self, source: str, *, updates: bool, interval_ms: int | None) -> Iterator[Query]:
        """Run a query while the context lasts.

        Args:
            source: The topic to count.
            updates: Whether counts are written as they grow, rather than at the window's end.
            interval_ms: The interval of epochs or micro-batches. None: the contender's default.
        """
        sink = self._broker.create(f"counts-{uuid.uuid4().hex}", 2)
        task = {
            "servers": self._broker.config["bootstrap.servers"],
            "source": source,
            "sink": sink,
            "folder": str(self._folder / sink),
            "window_s": WINDOW_S,
            "delay_s": _DELAY_S,
            "updates": updates,
            "interval_ms": interval_ms,
            **self._settings,
        }
        before_s = self._cpu_s()
        self._say(json.dumps(task))
        self._answer()
        query = Query(Results(self._broker, sink, 2, self._check))
        yield query
        query.results.close()
        query.cpu_s = self._cpu_s() - before_s
        self._say("stop")
        for name, value in self._answer().items():
            setattr(query, name, value)

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"{self.name} has ended")

    def _cpu_s(self) -> float:
        root = psutil.Process(self._process.pid)
        total_s = 0.0
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                times = process.cpu_times()
                total_s += times.user + times.system
        return total_s

    def _check(self) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} has ended with {self._process.returncode}")

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def contenders(broker: Broker, folder: Path, names: Sequence[str]) -> Iterator[list[Contender]]:
    """Start the contenders with these names; they end with the context."""
    ours = [sys.executable, "-m", "benchmarks.kafka.ours"]
    peer = [f"{PEER}/bin/python", "-m", "benchmarks.kafka.structured", str(PEER / "jars")]
    ways: dict[str, tuple[list[str], dict[str, Any]]] = {
        OURS: (ours, {"transactions": False}),
        OURS_EXACTLY_ONCE: (ours, {"transactions": True}),
        OURS_TRANSACTIONS_OFF: (ours, {"transactions": True, "guarantee": "at_least_once"}),
        STRUCTURED: (peer, {}),
    }
    with contextlib.ExitStack() as stack:
        started = []
        for name in names:
            command, settings = ways[name]
            started.append(Contender(name, command, broker, folder, settings))
            stack.callback(started[-1].close)
        yield started
