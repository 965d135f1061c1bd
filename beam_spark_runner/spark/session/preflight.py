"""Checks executors before a pipeline runs: their Python, packages, and access to shared storage."""

import contextlib
import importlib.metadata
import os
import platform
import re
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from beam_spark_runner.core.environments import ExecutorEnvironment
from beam_spark_runner.core.errors import ExecutorMismatchError, OptionsError
from beam_spark_runner.core.version import VERSION
from beam_spark_runner.spark.java_errors import line_of, text_of_error
from beam_spark_runner.spark.session.container import path_for_all
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.python_archive import pack_environment
from beam_spark_runner.storage.urls import is_url

_INSTALL = (
    "Install the same versions for the executors' Python, send those of this program with "
    "--executor_environment=archive, or set --spark_conf=spark.pyspark.python=… (PYSPARK_PYTHON "
    "for spark-submit) to a Python that has them: see README, 'On a cluster'."
)
_SCHEMA = (
    "folder string, host string, python string, version string, beam string, runner string, "
    "problem string"
)


@dataclass(frozen=True, slots=True)
class Installation:
    """The installation of one executor. The version of a missing package is empty."""

    host: str
    python: str  # the interpreter's path, see ``path_for_all``
    version: str  # of Python, minor
    beam: str
    runner: str
    problem: str  # why it could not read the probe file; empty: it could


def check_executors(
    session: SessionHandle,
    shared_storage: str | None,
    environment: ExecutorEnvironment = "installed",
) -> None:
    """Run one small task per slot, once for each application and storage.

    Args:
        session: the pipeline's session. Nothing is done if tasks run in the driver's JVM.
        shared_storage: a folder that executors must see, if one was named. A URL is
            checked when it is opened, by ``stored_folder``.
        environment: what executors run with: what is installed there; this program's packages,
            sent as an archive; or the latter where Beam or this package is missing.

    Raises:
        ExecutorMismatchError: with every difference, and what to do.
        OptionsError: executors do not see the shared storage, or the packages cannot be sent.
    """
    if session.is_local:
        return
    application = session.application_id()
    key = (application, shared_storage, environment)
    with _lock:
        if application in _archives and environment != "installed":
            session.use_archive(_archives[application])
        if key in _checked:
            return
        installations = _ask(session, shared_storage)
        if application not in _archives and _wants_archive(installations, environment):
            _archives[application] = _send(session, installations, environment)
            installations = _ask(session, shared_storage)
        _check_versions(installations)
        for executor in installations:
            if executor.problem:
                raise OptionsError(
                    "temp_location",
                    f"{shared_storage} is not storage that all executors share with this "
                    f"machine: on {executor.host} a file that was just written here could not be "
                    f"read ({executor.problem}). Name storage that is mounted at one path "
                    "everywhere, or leave the option out",
                )
        _checked.add(key)


_checked: set[tuple[str, str | None, ExecutorEnvironment]] = set()
_archives: dict[str, Path] = {}  # by application
_lock = threading.Lock()


def _wants_archive(installations: Sequence[Installation], environment: ExecutorEnvironment) -> bool:
    here = "{}.{}".format(*sys.version_info[:2])
    if environment == "installed" or {executor.version for executor in installations} != {here}:
        return False
    return environment == "archive" or any(
        not (executor.beam and executor.runner) for executor in installations
    )


def _send(
    session: SessionHandle, installations: Sequence[Installation], environment: ExecutorEnvironment
) -> Path:
    try:
        archive = pack_environment(sorted({executor.python for executor in installations}))
    except OptionsError as error:
        if environment == "archive":
            raise
        raise ExecutorMismatchError(
            f"executors lack apache-beam or beam-spark-runner, and {error.problem}.", _INSTALL
        ) from error
    session.add_archive(archive)
    session.use_archive(archive)
    return archive


def _ask(session: SessionHandle, shared_storage: str | None) -> Sequence[Installation]:
    slots = session.slots()
    with _probe_file(shared_storage) as path:
        try:
            # A range of as many rows as slots puts one row into each task, and tasks of an
            # idle application go to all its executors.
            frame = session.spark.range(0, slots, 1, slots).mapInArrow(_probe(path), _SCHEMA)
            return _sorted(frame.collect())
        except Exception as error:
            python: str | None = None
            with contextlib.suppress(Exception):  # Spark may have ended
                python = session.worker_python()
            problem = _what_spark_says(text_of_error(error), python)
            if problem is None:
                raise
            raise ExecutorMismatchError(problem, _INSTALL) from error


def _sorted(answers: Sequence[Any]) -> Sequence[Installation]:
    """Return what executors have, each once, by host."""
    found = {
        Installation(host, path_for_all(python, folder), *versions)
        for folder, host, python, *versions in answers
    }
    return sorted(found, key=lambda one: one.host)


@contextlib.contextmanager
def _probe_file(folder: str | None) -> Iterator[str | None]:
    if folder is None or is_url(folder):
        yield None
        return
    path = Path(folder) / f"beam-probe-{uuid.uuid4().hex}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"probe")
    try:
        yield os.path.abspath(path)
    finally:
        path.unlink(missing_ok=True)


def _probe(path: str | None) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that finds out what is installed on an executor.

    This package may be missing there. A nested function is pickled by value, and
    it imports all that it uses.
    """

    def look_around(batches: Any) -> Any:
        import importlib.metadata
        import os
        import platform
        import sys

        import pyarrow

        for _ in batches:
            pass
        try:
            beam = importlib.metadata.version("apache-beam")
        except importlib.metadata.PackageNotFoundError:
            beam = ""
        try:
            from beam_spark_runner.core.version import VERSION

            runner = VERSION
        except ImportError:
            runner = ""
        problem = ""
        if path is not None:
            try:
                with open(path, "rb") as file:
                    problem = "" if file.read() == b"probe" else "it has another content"
            except OSError as error:
                problem = f"{type(error).__name__}: {error.strerror}"
        row = {
            "folder": os.getcwd(),
            "host": platform.node(),
            "python": sys.executable,
            "version": "{}.{}".format(*sys.version_info[:2]),
            "beam": beam,
            "runner": runner,
            "problem": problem,
        }
        yield pyarrow.RecordBatch.from_pylist([row])

    return look_around


def _check_versions(installations: Sequence[Installation]) -> None:
    here = Installation(
        platform.node(),
        sys.executable,
        "{}.{}".format(*sys.version_info[:2]),
        importlib.metadata.version("apache-beam"),
        VERSION,
        "",
    )
    lines: dict[str, None] = {}
    for executor in installations:
        differences = [
            f"{name} {theirs or 'is missing'}, here {ours}"
            for name, theirs, ours in (
                ("Python", executor.version, here.version),
                ("apache-beam", executor.beam, here.beam),
                ("beam-spark-runner", executor.runner, here.runner),
            )
            if theirs != ours
        ]
        if differences:
            lines[f"  {executor.host} ({executor.python}): {'; '.join(differences)}"] = None
    if lines:
        raise ExecutorMismatchError(
            "executors do not have the versions with which this program runs:\n" + "\n".join(lines),
            _INSTALL,
        )


def _what_spark_says(text: str, python: str | None) -> str | None:
    """Return the problem that Spark's worker has found before it ran the probe; None: none.

    Args:
        text: Spark's error.
        python: the interpreter of the workers; None: it is not known here.
    """
    which = f" ({python})" if python else ""
    if "PYTHON_VERSION_MISMATCH" in text or "different version" in text:
        here = "{}.{}".format(*sys.version_info[:2])
        return f"executors run another Python{which} than this program ({here})."
    missing = re.search(r"No module named '(\w+)", text)
    if missing:
        return f"the executors' Python{which} has no {missing[1]}."
    if "PyArrow" in text:
        return f"the executors' Python{which} has no pyarrow."
    if cannot := re.search(r"Cannot run program .*", text):
        return f"executors cannot start Python: {cannot[0].strip()}"
    if "Error from python worker:" in text:
        return f"{line_of(text)}{which}"
    return None
