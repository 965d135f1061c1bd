"""The jars of Beam's Java SDK, the JVM that runs its tests, and what the machine must have."""

import base64
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple

_FOLDER = Path(__file__).parent
_PROGRAM = _FOLDER / "TestMain.java"
_NEEDED = {"java": "Java 17 or newer", "javac": "a JDK, not only a JRE", "mvn": "Maven"}
_STARTS_WITHIN_S = 120.0


class MissingToolsError(RuntimeError):
    """The machine lacks a program that the suite needs."""


class Answer(Enum):
    """What JUnit reports of a test. The values are the words of ``TestMain.java``."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"


class Said(NamedTuple):
    """The answer for one test; ``why`` is empty for a pass."""

    answer: Answer
    why: str


def check_tools() -> None:
    """Look for the programs that the suite needs.

    Raises:
        MissingToolsError: With all that are missing.
    """
    missing = [f"{name} ({what})" for name, what in _NEEDED.items() if not shutil.which(name)]
    if missing:
        raise MissingToolsError(f"not on the PATH: {', '.join(missing)}")


def jars(folder: Path) -> Path:
    """Return the folder with the SDK's jars; Maven downloads them if it is incomplete.

    Raises:
        RuntimeError: Maven has failed; with its output.
    """
    pom = _FOLDER / "pom.xml"
    ready = folder / ".ready"
    if not ready.exists() or ready.stat().st_mtime < pom.stat().st_mtime:
        shutil.rmtree(folder, ignore_errors=True)  # jars of another version
        done = subprocess.run(
            [
                *("mvn", "--quiet", "--batch-mode", "--file", pom, "dependency:copy-dependencies"),
                *("-DincludeScope=runtime", f"-DoutputDirectory={folder}"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"Maven has not found the jars of Beam: {done.stdout.strip()}")
        ready.touch()
    return folder


def version_of(jars: Path) -> str:
    """Return the version of Beam's Java SDK, such as ``2.65.0``."""
    return _tests_jar(jars).name.split("-")[-2]


def tests_of(jars: Path) -> list[str]:
    """List the tests, as ``CLASS#METHOD`` each, in alphabetical order."""
    said = subprocess.run(
        [*_java(jars), "--list", str(_tests_jar(jars))],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return said.stdout.split()


def class_path(jars: Path) -> str:
    """Return a class path with all jars of a folder, for ``java -cp``."""
    return f"{jars}/*"


def _tests_jar(jars: Path) -> Path:
    (found,) = jars.glob("beam-sdks-java-core-*-tests.jar")
    return found


def _java(jars: Path) -> Sequence[str]:
    # The source is compiled when the JVM starts, which takes a second.
    return ("java", "-Xmx2g", "-XX:TieredStopAtLevel=1", "-cp", class_path(jars), str(_PROGRAM))


class TestJvm:
    """A JVM that runs tests one after another.

    The first test starts it, and so does the first one after the JVM has died.

    Threads: one at a time.
    """

    __test__ = False  # for pytest

    def __init__(self, jars: Path, log: Path) -> None:
        """Take the folder of the jars, and the file that gets what tests print."""
        self._jars = jars
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str] = queue.Queue()

    def run(self, test: str, options: Sequence[str], timeout_s: float) -> Said | None:
        """Run one test.

        Args:
            test: ``CLASS#METHOD``.
            options: Of the test's pipelines.
            timeout_s: For the test. After that, the JVM is killed.

        Returns:
            JUnit's answer, or nothing if it has none in time, or if the JVM has died.
        """
        starts = self._process is None
        process = self._start()
        assert process.stdin is not None
        try:
            print(test, json.dumps(list(options)), file=process.stdin, flush=True)
            answer = self._lines.get(timeout=timeout_s + (_STARTS_WITHIN_S if starts else 0.0))
        except (BrokenPipeError, queue.Empty):
            answer = ""
        if not answer:
            self.close()
            return None
        word, _, coded = answer.partition(" ")
        return Said(Answer(word), base64.b64decode(coded).decode().strip())

    def close(self) -> None:
        """Kill the JVM, if there is one, and all processes that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._lines = queue.Queue()
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    _java(self._jars),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            assert self._process.stdout is not None
            threading.Thread(
                target=_read, args=(self._process.stdout, self._lines), daemon=True
            ).start()
        return self._process


def _read(answers: IO[str], lines: "queue.Queue[str]") -> None:
    """Queue the answers, and an empty one when the JVM has ended."""
    with answers:
        for line in answers:
            lines.put(line.strip())
    lines.put("")
