"""Run one suite on one runner, in processes of its own, until each test has an outcome."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from integration.expansion_service import (
    IN_PROCESSES,
    IN_THE_SERVICE,
    expansion_service,
    in_containers,
)
from integration.validates_runner.containers import OTHER_IMAGE, variables_of_containers
from integration.validates_runner.runners import (
    IN_STATE_STORE,
    SPARK_DOCKER,
    SPARK_LOOPBACK,
    STATE_STORE,
)
from integration.validates_runner.suites import HERE, ROOT, SUITES, Suite, pytest_arguments
from tests.state_store.servers import redis_server

_TEST_TIMEOUT_S = 120
_HANG_TIMEOUT_S = 180
"""Then the test did not even end when pytest told it to, and its process goes."""
_ENDED_AS_PYTEST_SHOULD = (0, 1, 5)  # passed, failed, no tests left


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one test did on one runner."""

    outcome: str  # passed, failed, skipped
    message: str = ""
    seconds: float = 0.0
    drives_runner: bool = False
    other_runners: tuple[str, ...] = ()


stopping = threading.Event()
"""Set: suites that run are ended, and ``run_suite`` raises."""


def run_suite(
    name: str,
    runner: str,
    log: Path,
    *,
    only: str | None = None,
    tests: Sequence[str] = (),
    known: Mapping[str, Result] = MappingProxyType({}),
    remembers: bool = False,
) -> dict[str, Result]:
    """Run a suite; what ``log`` already has is not run again.

    Args:
        name: of ``SUITES``.
        runner: of ``runners.RUNNERS``.
        log: lines of JSON, written as tests begin and end.
        only: pytest's ``-k``.
        tests: ids of those to run; none: all.
        known: results that need no run.
        remembers: Beam answers the same question once, see ``tests.beam_once``.

    Raises:
        RuntimeError: pytest itself does not work.
    """
    spec = importlib.util.find_spec("apache_beam")  # to import it takes two seconds
    assert spec is not None
    assert spec.origin is not None
    beam = Path(spec.origin).parent
    command = pytest_command(Path(sys.executable), beam.parent, runner, log)
    command += ["--conformance-remembers"] if remembers else []
    command += pytest_arguments(SUITES[name], beam, tests) + (["-k", only] if only else [])
    with _environment(SUITES[name], runner) as environment:
        return run_to_the_end(command, environment, log, known=known)


def pytest_command(
    python: Path, root: Path, runner: str, log: Path, *, timeout_s: int = _TEST_TIMEOUT_S
) -> list[str]:
    """Return the command that runs tests on a runner, without what it is to collect.

    Args:
        python: the interpreter of the environment whose tests they are.
        root: the folder from which on the ids of tests name their files.
        runner: of ``runners.RUNNERS``.
        log: see ``run_to_the_end``.
        timeout_s: of one test, in seconds; less than ``run_to_the_end`` waits for the log.
    """
    return [
        *(str(python), "-m", "pytest", "-c", str(HERE / "pytest.ini")),
        *("--rootdir", str(root), "-p", "integration.validates_runner.plugin"),
        *(f"--conformance-runner={runner}", f"--conformance-log={log}"),
        *(f"--conformance-root={root}", f"--timeout={timeout_s}"),
        "--continue-on-collection-errors",
    ]


def with_this_project(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with which a process finds the modules of this project."""
    modules = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    return {**environment, "PYTHONPATH": modules}


@contextlib.contextmanager
def _environment(suite: Suite, runner: str) -> Iterator[dict[str, str]]:
    """Yield the environment variables of a suite's processes, with what it and its runner want."""
    environment = with_this_project(os.environ)
    with contextlib.ExitStack() as resources:
        if runner == SPARK_DOCKER:
            environment |= resources.enter_context(variables_of_containers())
        if runner == IN_STATE_STORE:
            folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="redis-"))
            environment[STATE_STORE] = resources.enter_context(redis_server(Path(folder))).url
        if suite.wants_expansion_service:
            where: tuple[str, ...] = IN_PROCESSES
            if runner == SPARK_LOOPBACK:
                where = IN_THE_SERVICE
            elif runner == SPARK_DOCKER:
                where = in_containers(environment[OTHER_IMAGE])
            port = resources.enter_context(expansion_service(*where))
            environment["EXPANSION_PORT"] = str(port)
        yield environment


def run_to_the_end(
    command: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    known: Mapping[str, Result] = MappingProxyType({}),
) -> dict[str, Result]:
    """Run pytest until each of its tests has an outcome in the log.

    Args:
        command: see ``pytest_command``.
        environment: the variables of its process.
        log: lines of JSON; pytest runs in its folder.
        known: results that need no run.

    Raises:
        RuntimeError: pytest itself does not work.
    """
    _note(known, log)
    while True:
        before = log.read_text() if log.exists() else ""
        with log.with_suffix(".out").open("a") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            returncode = _wait(process, log)
        if (broken_off := _broken_off(log)) is not None:
            with log.open("a") as lines:
                message = f"its process ended with {returncode}"
                line = {"test": broken_off, "outcome": "failed", "message": message}
                print(json.dumps(line), file=lines)
        elif returncode in _ENDED_AS_PYTEST_SHOULD:
            return read(log)
        if not log.exists() or log.read_text() == before:
            out = log.with_suffix(".out")
            raise RuntimeError(f"pytest ended with {returncode} and does not get on; see {out}")


def _note(known: Mapping[str, Result], log: Path) -> None:
    there = {line.get("test") for line in _lines(log)}
    with log.open("a") as lines:
        for test, result in known.items():
            if test not in there:
                print(json.dumps({"test": test, **asdict(result)}), file=lines)


def _wait(process: "subprocess.Popen[bytes]", log: Path) -> int:
    """Wait for the end; kill the process and its children once its log stands still too long."""
    started = time.time()
    try:
        while True:
            try:
                return process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                if stopping.is_set():
                    raise
                written = log.stat().st_mtime if log.exists() else started
                if time.time() - max(started, written) > _HANG_TIMEOUT_S:
                    os.killpg(process.pid, signal.SIGKILL)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def _lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _broken_off(log: Path) -> str | None:
    lines = _lines(log)
    if lines and "started" in lines[-1]:
        return str(lines[-1]["started"])
    return None


def read(log: Path) -> dict[str, Result]:
    """Read the results of a log, by test."""
    results = {}
    for line in _lines(log):
        if "test" in line:
            test = line.pop("test")
            line["other_runners"] = tuple(line.get("other_runners", ()))
            results[test] = Result(**line)
    return results
