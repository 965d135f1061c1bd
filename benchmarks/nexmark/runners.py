"""The runners that are compared. Each has a separate process, which runs queries one by one."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from benchmarks.nexmark.checks import check, undetermined
from benchmarks.nexmark.queries import run_query
from benchmarks.nexmark.results import read_results
from benchmarks.nexmark.source import Source
from tests.spark.random_streams.references import prism

_START_S = 120  # to start Spark on a slow machine
_END_S = 30


def _spark() -> tuple[Any, list[str]]:
    from beam_spark_runner import SparkPortableRunner
    from beam_spark_runner.spark.session.launch import start_classic

    session = start_classic("local[2]", "nexmark", {"spark.ui.enabled": "false"})
    return SparkPortableRunner(session), []


def _prism() -> tuple[Any, list[str]]:
    from apache_beam.runners.portability.prism_runner import PrismRunner

    return PrismRunner(), [f"--prism_location={prism()}", "--prism_log_level=error"]


def _fn_api() -> tuple[Any, list[str]]:
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    return FnApiRunner(), []


RUNNERS: dict[str, Callable[[], tuple[Any, list[str]]]] = {
    "spark": _spark,
    "prism": _prism,
    "fn_api": _fn_api,
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a run.

    Attributes:
        seconds: The duration of the run; 0: it did not end.
        results: The number of results.
        problem: What is wrong with the results, or why there are none; empty: they are right.
        note: Why the results were not checked; empty: they were.
    """

    seconds: float = 0.0
    results: int = 0
    problem: str = ""
    note: str = ""


def serve(name: str, source: Source, requests: TextIO, answers: TextIO) -> None:
    """Run the queries whose numbers are requested, a line each, and answer with their outcomes."""
    runner, flags = RUNNERS[name]()
    for line in requests:
        outcome = _run(int(line), runner, source, flags)
        answers.write(json.dumps(vars(outcome)) + "\n")
        answers.flush()


def _run(query: int, runner: Any, source: Source, flags: list[str]) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="nexmark-") as folder:
        began = time.monotonic()
        try:
            run_query(query, runner, source, Path(folder), flags)
        # Whatever a runner raises is what the table says of it.
        except Exception as error:
            return Outcome(problem=f"{type(error).__name__}: {_essence(str(error))}")
        seconds = time.monotonic() - began
        results = list(read_results(Path(folder)))
    note = undetermined(query, source.workload)
    problem = "" if note else check(query, source.workload, results)
    return Outcome(seconds=seconds, results=len(results), problem=problem, note=note)


def _essence(text: str) -> str:
    """Return the lines of a message about unsupported features or, without any, its beginning."""
    lines = [line.strip(' "') for line in text.splitlines()]
    unsupported = dict.fromkeys(line for line in lines if line.startswith("unsupported"))
    return "; ".join(unsupported or filter(None, lines))[:300]


class Process:
    """A runner in a separate process, which may start others.

    Args:
        command: A command that calls ``serve`` with standard input and output.
        limit_s: The time limit of a query, in seconds.
        log: The file for the standard error of the process.
    """

    def __init__(self, command: list[str], limit_s: float, log: Path) -> None:
        self._command = command
        self._limit_s = limit_s
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def run(self, query: int) -> Outcome:
        """Run a query. If it takes too long, the process ends, and the next query has a new one."""
        limit_s = self._limit_s
        if self._process is None:
            self._start()
            limit_s += _START_S
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{query}\n")
            self._process.stdin.flush()
            answer = self._answers.get(timeout=limit_s)
        except BrokenPipeError:
            answer = ""
        except queue.Empty:
            self.end(patience_s=0)
            return Outcome(problem=f"not done after {limit_s:g} s")
        if not answer:
            self.end()
            lines = self._log.read_text().splitlines() or [""]
            return Outcome(problem=f"the process ended: {lines[-1]}")
        return Outcome(**json.loads(answer))

    def _start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answers = queue.Queue()
        reader = threading.Thread(
            target=_read, args=(self._process.stdout, self._answers), daemon=True
        )
        reader.start()

    def end(self, patience_s: float = _END_S) -> None:
        """End the process, and those that it started; after some time by force."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(BrokenPipeError), process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(patience_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _read(stream: TextIO, answers: "queue.Queue[str]") -> None:
    with contextlib.suppress(ValueError):  # it has been closed
        for line in stream:
            answers.put(line)
    answers.put("")


def answers_alone() -> TextIO:
    """Return standard output for answers, and redirect what libraries print to stderr."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers
