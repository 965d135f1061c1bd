"""The files in which the events of a job are recorded: which start has which, and how it writes.

Each start of a job has its own: in a folder that this machine mounts, one file, to which it
appends. Nothing can be appended to the objects of a store; there, it writes one after another.
"""

import contextlib
import io
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable

from typing_extensions import override

from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.mounted_folder import MountedFolder

_SUBFOLDER = "events"
_NAME = re.compile(r"(\d{1,18})(?:\.(\d{1,18}))?", re.ASCII)
_OBJECT_PAUSE_S = 10.0


class EventFiles(ABC):
    """What one start of a job writes. All methods raise an ``OSError`` if the folder fails.

    Threads: one.

    Attributes:
        min_interval_s: The shortest time after which events should be written that are few.
    """

    min_interval_s = 0.0

    @abstractmethod
    def write(self, records: bytes) -> None:
        """Write records after those that were written before."""

    @abstractmethod
    def clear(self) -> None:
        """Delete the events of all starts."""


class AppendedFile(EventFiles):
    """One file, which is appended to. It is not synced: people only miss something after a crash
    of the machine.

    Args:
        folder: The folder of the file.
        start: The number of the start.
    """

    def __init__(self, folder: MountedFolder, start: int) -> None:
        self._folder, self._path = folder, folder.path_of(str(start))
        self._is_there = False

    @override
    def write(self, records: bytes) -> None:
        """The file is closed each time, so that NFS shows its content to other machines.

        Nothing is made again that was deleted: another server has taken the job over, and ended it.
        """
        if not self._is_there:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder.path)
        with open(self._path, "r+b" if self._is_there else "xb") as file:
            self._is_there = True
            file.seek(0, io.SEEK_END)
            file.write(records)

    @override
    def clear(self) -> None:
        self._folder.remove()


class NumberedObjects(EventFiles):
    """Several files, with numbers in their names.

    Args:
        folder: The folder of the files.
        start: The number of the start.
    """

    min_interval_s = _OBJECT_PAUSE_S

    def __init__(self, folder: Folder, start: int) -> None:
        self._folder, self._start = folder, start
        self._next_number = 0

    @override
    def write(self, records: bytes) -> None:
        if not self._next_number:
            self._folder.make()
        self._folder.put_content(f"{self._start}.{self._next_number}", io.BytesIO(records))
        self._next_number += 1

    @override
    def clear(self) -> None:
        self._folder.remove()


def folder_of_events(folder: Folder) -> Folder:
    """Return the folder of events in a job's folder."""
    return folder / _SUBFOLDER


def files_of_start(folder: Folder, start: int) -> EventFiles:
    """Return what a start of a job writes.

    Args:
        folder: The folder of events.
        start: The number of the start, which no other one has.
    """
    if isinstance(folder, MountedFolder):
        return AppendedFile(folder, start)
    return NumberedObjects(folder, start)


def last_start(folder: Folder) -> int:
    """Return the number of the latest start of a job that has recorded events; 0: none has.

    Args:
        folder: The folder of the job.

    Raises:
        OSError: The folder cannot be read.
    """
    events = folder_of_events(folder)
    names = events.names() if events.exists() else ()
    matches = (_NAME.fullmatch(name) for name in names)
    return max((int(match[1]) for match in matches if match), default=0)


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names of files with events, in the order in which they were written.

    Args:
        names: The names of all files in the folder of events.
    """
    numbered = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            numbered.append((int(match[1]), int(match[2] or 0), name))
    return [name for _, _, name in sorted(numbered)]
