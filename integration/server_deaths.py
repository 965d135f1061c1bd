"""Kills a job server at a named moment, of its own or of a task, by ``kill -9``.

A module that Python workers and SDK harnesses import by its name, also those of a client.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam

from beam_spark_runner.storage.mounted_folder import MountedFolder

ORDERS = "SERVER_ORDERS"
"""The variable of the environment with the folder of ``Orders``."""

_JOB = r"/[0-9a-f]{12}"
_NAME = r"/\d{12}-[0-9a-f]{12}"
_MANIFEST = rf"{_JOB}/batch-\d{{12}}\.manifest"
MOMENTS = {
    # of the server
    "the submission is stored": rf"after create {_NAME}\.job",
    "the fence is claimed": rf"after create {_JOB}/\d{{12}}\.fence",
    "a Spark job has ended": rf"before create {_MANIFEST}",
    "the manifest is hidden": rf"hidden {_MANIFEST}",
    "the manifest has its name": rf"named {_MANIFEST}",
    "side inputs are gathered": "gathered",
    "superseded rows are half removed": rf"half remove {_JOB}/work-\d{{12}}",
    "the end is hidden": rf"hidden {_NAME}\.ended",
    "the end is stored": rf"after create {_NAME}\.ended",
    "the job is half removed": rf"half remove {_JOB}",
    "all but the submission is removed": rf"before delete {_NAME}\.job",
    # of tasks
    "a task starts": "task starts",
    "user code starts": "user code starts",
    "user code is in the middle": "user code is in the middle",
    "user code has ended": "user code has ended",
    "rows are stored": rf"before create {_JOB}/work-\d{{12}}/p.*\.done",
    "the finish record is created": rf"after create {_JOB}/work-\d{{12}}/p.*\.done",
    "a task has reported": "task has reported",
}
"""Regular expressions of the notes that are made at each moment."""
_CHANGES = ("create", "delete", "new_file", "put", "put_content", "make")


class Orders:
    """When a server dies, and at which moments it and its tasks have been. Threads, processes: any.

    Args:
        folder: Through which the test and all processes communicate; it exists.

    Attributes:
        jobs: ``--jobs_dir`` of the server.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.jobs = f"{folder}/jobs"

    def give(self, moment: str = "", nth: int = 0) -> None:
        """Order when the next server dies: at a moment, when it comes to it for the nth time."""
        Path(self._folder, "notes").write_text("")
        Path(self._folder, "moment").write_text(json.dumps([moment, nth]))

    def moments(self) -> Counter[str]:
        """Return how often the server has come to each moment since the last order."""
        notes = Path(self._folder, "notes").read_text().splitlines()
        return Counter(moment for moment in map(_moment_of, notes) if moment)

    def obey(self) -> None:
        """Make this process the server that dies."""
        Path(self._folder, "server").write_text(str(os.getpid()))

    def meet(self, note: str) -> bool:
        """Note what happens. If it was ordered, kill the server, and return True."""
        moment, nth = json.loads(Path(self._folder, "moment").read_text())
        with open(Path(self._folder, "notes"), "a+") as notes:
            fcntl.flock(notes, fcntl.LOCK_EX)
            notes.write(f"{note}\n")
            notes.flush()
            is_it = bool(moment) and _moment_of(note) == moment and self.moments()[moment] == nth
        if is_it:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(Path(self._folder, "server").read_text()), signal.SIGKILL)
        return is_it


def _moment_of(note: str) -> str | None:
    return next((name for name, what in MOMENTS.items() if re.fullmatch(what, note)), None)


class Noted(beam.DoFn):  # type: ignore[misc]
    """Passes elements on, and notes how far its bundles are."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._orders = Orders(folder)

    def start_bundle(self) -> None:
        self._seen = 0
        self._orders.meet("user code starts")

    def process(self, element: Any) -> Iterator[Any]:
        self._seen += 1
        if self._seen == 2:
            self._orders.meet("user code is in the middle")
        yield element

    def finish_bundle(self) -> None:
        self._orders.meet("user code has ended")


def watch_in_server() -> None:
    """Watch this process, a job server."""
    from beam_spark_runner.driving.stored_segments import StoredSegments

    orders = Orders(os.environ[ORDERS])
    orders.obey()
    _watch(orders.jobs, orders.meet)
    gather = StoredSegments.gather

    def gathers(*arguments: Any) -> None:
        orders.meet("gathered")
        gather(*arguments)

    mock.patch.object(StoredSegments, "gather", gathers).start()


def watch_in_workers() -> None:
    """Watch this process, from which Spark forks its Python workers."""
    from beam_spark_runner.engine.task.task import LevelTask

    orders, run = Orders(os.environ[ORDERS]), LevelTask.run

    def meet(note: str) -> None:
        if orders.meet(note):
            signal.pause()  # the task has come no further; Spark ends it

    def runs(task: LevelTask, batches: Any) -> Iterator[Any]:
        meet("task starts")
        yield from run(task, batches)
        meet("task has reported")

    _watch(orders.jobs, meet)
    mock.patch.object(LevelTask, "run", runs).start()


def _watch(jobs: str, meet: Callable[[str], object]) -> None:
    link, remove = os.link, MountedFolder.remove

    def links(source: str, target: str) -> None:
        if target.startswith(jobs):
            meet(f"hidden {target.removeprefix(jobs)}")
        link(source, target)
        if target.startswith(jobs):
            meet(f"named {target.removeprefix(jobs)}")

    def removes(folder: MountedFolder) -> None:
        if folder.path.startswith(jobs):
            files = [each for each in sorted(Path(folder.path).rglob("*")) if each.is_file()]
            for file in files[: len(files) // 2]:
                file.unlink(missing_ok=True)
            meet(f"half remove {folder.path.removeprefix(jobs)}")
        remove(folder)

    mock.patch.object(os, "link", links).start()
    mock.patch.object(MountedFolder, "remove", removes).start()
    for name in _CHANGES:
        real = getattr(MountedFolder, name)
        mock.patch.object(MountedFolder, name, _noted(name, real, jobs, meet)).start()


def _noted(
    name: str, real: Callable[..., Any], jobs: str, meet: Callable[[str], object]
) -> Callable[..., Any]:
    def change(folder: MountedFolder, *arguments: Any, **named: Any) -> Any:
        if not folder.path.startswith(jobs):
            return real(folder, *arguments, **named)
        place = folder.path.removeprefix(jobs)
        if name == "delete":
            arguments = (list(arguments[0]),)
            notes = [f"{name} {place}/{file}" for file in arguments[0]]
        else:
            notes = [f"{name} {place}/{arguments[0] if arguments else ''}"]
        for note in notes:
            meet(f"before {note}")
        result = real(folder, *arguments, **named)
        for note in notes:
            meet(f"after {note}")
        return result

    return change
