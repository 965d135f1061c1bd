"""Files that all tasks of a job can read."""

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa

from beam_spark_runner.storage.folder import Folder, copied_to
from beam_spark_runner.storage.mounted_folder import MountedFolder


class SharedFile(Protocol):
    """A file that all tasks can read. The object is sent to them."""

    def map(self) -> tuple[pa.Buffer, mmap.mmap | None]:
        """Return its bytes, in a task, and their map. None: they are in memory."""
        ...

    def open(self) -> BinaryIO:
        """Open it, in a task."""
        ...


@dataclass(frozen=True, slots=True)
class MountedFile:
    """See ``SharedFile``. ``path``: the same on all machines."""

    path: str

    def map(self) -> tuple[pa.Buffer, mmap.mmap | None]:
        """See ``SharedFile``."""
        mapped = map_file(self.path)
        return pa.py_buffer(mapped), mapped

    def open(self) -> BinaryIO:
        """See ``SharedFile``."""
        return Path(self.path).open("rb")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """See ``SharedFile``: a file of a folder that is not mounted; tasks read local copies."""

    folder: Folder
    name: str

    def map(self) -> tuple[pa.Buffer, mmap.mmap | None]:
        """See ``SharedFile``."""
        with self.folder.local(self.name) as path:
            mapped = map_file(path)
        return pa.py_buffer(mapped), mapped

    def open(self) -> BinaryIO:
        """See ``SharedFile``."""
        return self.folder.open(self.name)


def file_in(folder: Folder, name: str) -> SharedFile:
    """Return a file of a folder that all tasks reach."""
    if isinstance(folder, MountedFolder):
        return MountedFile(folder.path_of(name))
    return StoredFile(folder, name)


def name_of(file: SharedFile) -> str:
    """Return the name of a file that ``file_in`` has returned."""
    if isinstance(file, StoredFile):
        return file.name
    assert isinstance(file, MountedFile)
    return Path(file.path).name


def share_file(
    source: Path, folder: Folder | None, share: Callable[[Path], SharedFile]
) -> SharedFile:
    """Send a file to all executors, for as long as the job runs. ``source`` may then be deleted.

    Args:
        source: The file; its name is unique in the session.
        folder: The folder that all of them reach, if there is one.
        share: See ``SessionHandle.share``.
    """
    if folder is None:
        return share(source)
    copied_to(folder, source)
    return file_in(folder, source.name)


def map_file(path: str) -> mmap.mmap:
    """Map a file into memory, read-only."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
