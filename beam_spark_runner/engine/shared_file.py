"""Files that all tasks of a job can read."""

import mmap
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

import pyarrow as pa


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


class Downloadable(Protocol):
    """An object of a store that all executors reach."""

    def downloaded(self) -> AbstractContextManager[str]:
        """Return the path of a local copy, which is removed afterwards. Maps of it stay valid."""
        ...


@dataclass(frozen=True, slots=True)
class StoredFile:
    """See ``SharedFile``. ``stored``: an object of a store that all machines reach."""

    stored: Downloadable

    def map(self) -> tuple[pa.Buffer, mmap.mmap | None]:
        """See ``SharedFile``."""
        with self.stored.downloaded() as local:
            mapped = map_file(local)
        return pa.py_buffer(mapped), mapped

    def open(self) -> BinaryIO:
        """See ``SharedFile``."""
        with self.stored.downloaded() as local:
            return Path(local).open("rb")


def map_file(path: str) -> mmap.mmap:
    """Map a file into memory, read-only."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
