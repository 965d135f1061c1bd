"""Kills the driver of a batch job at one of the changes that driver and tasks make in its folder.

A module that Python workers import by its name.
"""

import fcntl
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import apache_beam as beam

from beam_spark_runner.storage.folder import UrlFolder
from beam_spark_runner.storage.hdfs_folder import HdfsFolder
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.object_folder import ObjectFolder

CHANGES = ("create", "delete", "new_file", "put", "put_content", "make", "remove")
_DRIVER, _DEATH = "BATCH_DRIVER_PID", "BATCH_DEATH"


class Death(NamedTuple):
    """When a driver dies.

    Attributes:
        folder: The path or URL of the folder of the job.
        counter: A file whose size is the number of changes so far, in all processes.
        nth: The number of the change, from 1. 0: it does not die.
        is_done: Whether the change is made before.
        what: A regular expression of the changes that count, such as
            ``create /work-000000000001/p00000of00002-0123456789abcdef.done``, without the
            subfolder of the job.
    """

    folder: str
    counter: str
    nth: int
    is_done: bool
    what: str = ""


def watch_in_driver(death: Death) -> None:
    """Watch the changes of this process, the driver."""
    # Python workers have it from here: the pipeline is that of the first start.
    os.environ[_DRIVER] = str(os.getpid())
    os.environ[_DEATH] = json.dumps(death)
    _watch(death)


class Watched(beam.DoFn):  # type: ignore[misc]
    """Passes elements on, and watches the changes of the process of its task from then on."""

    def setup(self) -> None:
        death = os.environ.get(_DEATH)
        if death is not None:  # else it is no process of the driver's machine
            _watch(Death(*json.loads(death)))

    def process(self, element: Any) -> Iterator[Any]:
        yield element


_watched: set[int] = set()  # processes


def _watch(death: Death) -> None:
    if os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    for kind in (MountedFolder, ObjectFolder, HdfsFolder):
        for name in CHANGES:
            mock.patch.object(kind, name, _change(name, getattr(kind, name), death)).start()


def _change(name: str, real: Callable[..., Any], death: Death) -> Callable[..., Any]:
    def change(folder: MountedFolder | UrlFolder, *arguments: Any, **named: Any) -> Any:
        place = folder.path if isinstance(folder, MountedFolder) else folder.url
        is_nth = False
        if place.startswith(death.folder):
            file = arguments[0] if arguments and isinstance(arguments[0], str) else ""
            below = re.sub(r"^/job-[0-9a-f]+", "", place.removeprefix(death.folder))
            what = f"{name} {below}/{file}"
            is_nth = bool(re.match(death.what, what)) and _count(death.counter) == death.nth
        if is_nth and not death.is_done:
            _kill()
        result = real(folder, *arguments, **named)
        if is_nth:
            _kill()
        return result

    return change


def _count(file: str) -> int:
    with Path(file).open("ab") as notes:
        fcntl.flock(notes, fcntl.LOCK_EX)
        notes.write(b".")
        notes.flush()
        return notes.tell()


def _kill() -> None:
    os.kill(int(os.environ[_DRIVER]), signal.SIGKILL)
    if os.getpid() != int(os.environ[_DRIVER]):
        signal.pause()  # the task has come no further; Spark ends it
