"""Kills the driver of a batch job at one of the changes that driver and tasks make in its folder.

A module that Python workers import by its name.
"""

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import apache_beam as beam

from beam_spark_runner.storage.mounted_folder import MountedFolder

CHANGES = ("create", "delete", "new_file", "put", "put_content", "make", "remove")
_DRIVER = "BATCH_DRIVER_PID"


class Death(NamedTuple):
    """When a driver dies.

    Attributes:
        folder: The folder of the job.
        counter: A file whose size is the number of changes so far, in all processes.
        nth: The number of the change, from 1. 0: it does not die.
        is_done: Whether the change is made before.
    """

    folder: str
    counter: str
    nth: int
    is_done: bool


def watch_in_driver(death: Death) -> None:
    """Watch the changes of this process, the driver."""
    os.environ[_DRIVER] = str(os.getpid())  # Python workers have it from here
    _watch(death)


class Watched(beam.DoFn):  # type: ignore[misc]
    """Passes elements on, and watches the changes of the process of its task from then on."""

    def __init__(self, death: Death) -> None:
        super().__init__()
        self._death = death

    def setup(self) -> None:
        _watch(self._death)

    def process(self, element: Any) -> Iterator[Any]:
        yield element


_watched: set[int] = set()  # processes


def _watch(death: Death) -> None:
    if os.getpid() in _watched:
        return
    _watched.add(os.getpid())
    for name in CHANGES:
        mock.patch.object(MountedFolder, name, _change(getattr(MountedFolder, name), death)).start()


def _change(real: Callable[..., Any], death: Death) -> Callable[..., Any]:
    def change(folder: MountedFolder, *arguments: Any, **named: Any) -> Any:
        is_nth = folder.path.startswith(death.folder) and _count(death.counter) == death.nth
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
