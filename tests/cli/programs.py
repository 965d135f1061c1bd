"""Whole programs, run as a user runs them: what they print, how they exit, what they leave."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
# A test run in the background of a script ignores Ctrl-C, and so would the program. It prepares
# its process itself, since a function that is called between fork and exec is unsafe while gRPC's
# threads run here.
_PRELUDE = """
import fcntl, os, signal, sys, termios, time
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.stderr.isatty():  # a session's first terminal: Ctrl-C on it reaches this program
    fcntl.ioctl(2, termios.TIOCSCTTY, 0)
import apache_beam as beam
import beam_spark_runner
OPTIONS = ["--runner=SparkPortableRunner", *sys.argv[1:]]
"""
MARK = "PROGRAM_UNDER_TEST"
"""The variable that all processes of a program have."""


class Ended(NamedTuple):
    """How a program ended."""

    code: int
    out: str
    err: str
    seconds: float


class Program:
    """One run of a program in a process, with a temp folder, and a mark on all its processes."""

    _is_on_terminal = False

    def __init__(self, folder: Path, script: str, *flags: str, **environment: str) -> None:
        self.folder = folder
        self.temp = folder / "tmp"
        self.temp.mkdir()
        self._flags = flags
        self._mark = uuid.uuid4().hex
        file = folder / "program.py"
        file.write_text(_PRELUDE + textwrap.dedent(script))
        variables = {
            # Else a process that makes an archive of Spark's classes may outlive the program.
            "SPARK_SUBMIT_OPTS": "-Xshare:auto",
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.temp),
        }
        self._began = time.monotonic()
        self._errors = folder / "stderr"  # a pipe that nobody reads would block a server once full
        self._terminal = -1
        with contextlib.ExitStack() as closing:
            if self._is_on_terminal:
                self._terminal, theirs = pty.openpty()
                errors: Any = closing.enter_context(os.fdopen(theirs, "wb"))
                self._copying = threading.Thread(target=self._copy, daemon=True)
            else:
                errors = closing.enter_context(self._errors.open("w"))
            self._process = subprocess.Popen(
                [sys.executable, str(file), *flags],
                cwd=folder,
                env={**variables, MARK: self._mark, **environment},
                stdin=errors if self._is_on_terminal else None,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # a separate process group
            )
        if self._is_on_terminal:
            self._copying.start()

    def _written(self) -> str:
        """Return what it has written to stderr, with the line ends of a terminal if it is one."""
        return self._errors.read_bytes().decode()

    def _copy(self) -> None:
        with self._errors.open("wb", buffering=0) as errors, contextlib.suppress(OSError):
            while part := os.read(self._terminal, 1 << 16):  # an error: nobody has it open
                errors.write(part)

    @property
    def pid(self) -> int:
        """Of the program."""
        return self._process.pid

    def read_line(self) -> str:
        """Wait for a line on stdout; empty if the program ends without one."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def send(self, number: signal.Signals) -> None:
        """Send a signal, as a terminal or a scheduler does: to the program only."""
        self._began = time.monotonic()
        self._process.send_signal(number)

    def send_to_group(self, number: signal.Signals) -> None:
        """Send a signal to the program and what it has started, as a shell or a terminal does."""
        self._began = time.monotonic()
        os.killpg(self.pid, number)

    def wait_for(self, file: Path) -> None:
        """Wait until the program has made a file."""
        self._wait_for(file.exists)

    def wait_for_temporary(self, pattern: str) -> None:
        """Wait until the program has made a temporary file whose name matches."""
        self._wait_for(lambda: any(self.temp.glob(pattern)))

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        if not self.wait_until(condition):
            raise AssertionError(self._written())

    def wait_until(self, condition: Callable[[], bool]) -> bool:
        """Wait for something, or for the program's end; return whether it has come."""
        self._until(lambda: condition() or self._process.poll() is not None, 240)
        return condition()

    def end(
        self,
        limit_s: float = 240,
        *,
        jvm_was_killed: bool = False,
        others_end_within_s: float = 20,
    ) -> Ended:
        """Wait for its end, then for its processes' and its files'.

        Args:
            limit_s: how long it may take.
            jvm_was_killed: Spark could not remove its own files.
            others_end_within_s: How long the processes that it has started may outlive it.

        Returns:
            How it ended; its seconds count from the last signal, or the start.
        """
        try:
            out, _ = self._process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        seconds = time.monotonic() - self._began
        self._until(lambda: not self._processes(), others_end_within_s)
        left_running = self._processes()
        assert left_running == [], left_running
        if not jvm_was_killed:
            of_spark = self.temp / f"beam-spark-{os.geteuid()}"
            if of_spark.exists():  # the folder itself stays
                assert list(of_spark.iterdir()) == []
            left = [path.name for path in self.temp.iterdir() if path != of_spark]
            assert [name for name in left if not name.startswith(self._left_by_beam())] == [], left
        if self._terminal >= 0:
            self._copying.join(20)
            os.close(self._terminal)
        return Ended(self._process.returncode, out, self._written(), seconds)

    def _left_by_beam(self) -> tuple[str, ...]:
        """Return how the names of files begin that Beam leaves."""
        names = ["beam-pipeline-temp"]  # if a program fails before its pipeline runs
        if "--environment_type=DOCKER" in self._flags:
            names.append("beam-requirements-cache")  # where it stages packages
        if "--runner=PortableRunner" in self._flags:
            names.append("tmp")  # what it has staged
        return tuple(names)

    def _processes(self) -> list[str]:
        """Return the command lines of all processes that have the mark, or their parent had it."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self._mark}".encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_text().replace("\0", " "))
            except OSError:  # it has ended, or is another user's
                continue
        return found

    @staticmethod
    def _until(condition: Callable[[], bool], limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.1)


class ProgramOnTerminal(Program):
    """A program whose stderr and keyboard are a terminal."""

    _is_on_terminal = True

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C on its terminal, which sends SIGINT to all that belong to it."""
        self._began = time.monotonic()
        os.write(self._terminal, b"\x03")

    def shown(self) -> str:
        """Return what its terminal has received so far."""
        return self._written() if self._errors.exists() else ""


def run(folder: Path, script: str, *flags: str, **environment: str) -> Ended:
    """Run a program to its end."""
    return Program(folder, script, *flags, **environment).end()


def lines_of(err: str) -> list[str]:
    """Return what a program printed, without what Beam and the JVM print for anybody."""
    others = ("apitools not found", "Using incubator modules")
    return [line for line in err.splitlines() if not any(other in line for other in others)]


def last_words(err: str) -> str:
    """Return the message of the exception that ended the program, after its type."""
    lines = lines_of(err)
    last = max(index for index, line in enumerate(lines) if line.startswith("beam_spark_runner."))
    return "\n".join(lines[last:]).partition(": ")[2]
