"""The folder of a job on storage that the driver and all executors share."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from beam_spark_runner.core.storage_urls import StorageUrl
from beam_spark_runner.engine.shared_file import MountedFile, SharedFile, StoredFile
from beam_spark_runner.engine.stored_object import StoredObject


class SharedFolder(Protocol):
    """A folder of a job, which all its tasks can read. The object is sent to executors."""

    def new_file(self, name: str) -> contextlib.AbstractContextManager[str]:
        """Return the path of a new file to write; others find it after the context has ended."""

    def file(self, name: str) -> SharedFile:
        """Return a file that was written."""


@dataclass(frozen=True, slots=True)
class MountedFolder:
    """See ``SharedFolder``. ``path``: the same on all machines."""

    path: str

    @contextlib.contextmanager
    def new_file(self, name: str) -> Iterator[str]:
        """See ``SharedFolder``."""
        yield os.path.join(self.path, name)

    def file(self, name: str) -> SharedFile:
        """See ``SharedFolder``."""
        return MountedFile(os.path.join(self.path, name))


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """See ``SharedFolder``: of an object store, or of HDFS.

    Attributes:
        url: the URL of the folder.
        options_json: the pipeline's options, by which Beam's file systems find the store.
    """

    url: StorageUrl
    options_json: str

    @contextlib.contextmanager
    def new_file(self, name: str) -> Iterator[str]:
        """See ``SharedFolder``."""
        with tempfile.NamedTemporaryFile(prefix="beam-") as file:
            yield file.name
            self._object(name).upload(file.name)

    def file(self, name: str) -> SharedFile:
        """See ``SharedFolder``."""
        return StoredFile(self._object(name))

    def _object(self, name: str) -> StoredObject:
        return StoredObject((self.url / name).beam, self.options_json)


def share_file(
    source: Path,
    folder: SharedFolder | None,
    share: Callable[[Path], SharedFile],
) -> SharedFile:
    """Send a file to all executors, for as long as the job runs. ``source`` may then be deleted.

    Args:
        source: the file; its name is unique in the session.
        folder: the folder that all of them reach, if there is one.
        share: see ``SessionHandle.share``.
    """
    return share(source) if folder is None else copied_to(folder, source)


def copied_to(folder: SharedFolder, source: Path) -> SharedFile:
    """Copy a file to a folder. Its name is unique there."""
    with folder.new_file(source.name) as path:
        shutil.copyfile(source, path)
    return folder.file(source.name)
