"""A folder in which a streaming pipeline commits its epochs, with errors for users."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.recovery.job_folders import EXCLUSION_PROBE
from beam_spark_runner.recovery.manifest import FencedError
from beam_spark_runner.recovery.savepoint_copy import CopyingStorage
from beam_spark_runner.storage.folder import Folder, UrlFolder


class CheckpointFolderError(CheckpointStorageError):
    """The folder cannot be read or written: it is full, unavailable, or access is denied."""

    @override
    def __str__(self) -> str:
        return f"the checkpoint folder {self.place} cannot be used: {self.problem}"


class CheckpointStorage(CopyingStorage):
    """A folder as ``CopyingStorage``.

    All methods raise a ``CheckpointStorageError`` if the folder cannot be read or written.

    Args:
        folder: The folder.
        place: Its path or URL, for errors.

    Attributes:
        put_bytes: The size of all files that were copied to it by this object.
    """

    def __init__(self, folder: Folder, place: str) -> None:
        self._folder, self._place = folder, place
        self.put_bytes = 0

    def make(self, option: str) -> None:
        """Make the folder, and check that a file can be created only once, with a probe file.

        File systems are not checked: a hard link cannot replace a file.

        Args:
            option: The option that names the folder, for errors.

        Raises:
            OptionsError: The storage creates a file that exists, so that two drivers could commit
                the same epoch.
        """
        folder = self._folder
        self.make_folder()
        if not isinstance(folder, UrlFolder):
            return
        self.create(EXCLUSION_PROBE, b"")
        # A driver that removes an ended job may have removed the probe meanwhile, once.
        if self.create(EXCLUSION_PROBE, b"") and self.create(EXCLUSION_PROBE, b""):
            raise OptionsError(
                option,
                f"the store at {self._place} {folder.two_may_create}, so that two "
                "drivers could commit the same epoch; use another store, or a folder that all "
                "hosts mount",
            )

    def make_folder(self) -> None:
        """Make the folder, if it is missing."""
        with self._doing("make it"):
            self._folder.make()

    def remove(self) -> None:
        """Remove the folder with all that is in it, if it exists."""
        with self._doing("remove it"):
            self._folder.remove()

    def exists(self) -> bool:
        """Return whether the folder exists; see ``Folder.exists``."""
        with self._doing("look for it"):
            return self._folder.exists()

    @override
    def names(self) -> Sequence[str]:
        with self._doing("list it"):
            return self._folder.names()

    @override
    def read(self, name: str) -> bytes:
        with self._doing(f"read {name}"):
            return self._folder.read(name)

    def folders(self) -> Sequence[str]:
        """Return the names of the folders in the folder."""
        with self._doing("list it"):
            return self._folder.folders()

    def read_if_there(self, name: str) -> bytes:
        """Return the content of a file; nothing if there is none of that name."""
        with self._doing(f"read {name}"):
            try:
                return self._folder.read(name)
            except FileNotFoundError:
                return b""

    @override
    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        """Create a file, as ``Storage.create`` says.

        Raises:
            NotDurableError: One of the files ``after`` may be lost.
        """
        with self._doing(f"create {name}"):
            return self._folder.create(name, data, after)

    @override
    def open(self, name: str) -> BinaryIO | None:
        with self._doing(f"read {name}"):
            try:
                return self._folder.open(name)
            except FileNotFoundError:
                return None

    @override
    def put(self, name: str, content: BinaryIO) -> None:
        with self._doing(f"write {name}"):
            begin = content.tell()
            size = content.seek(0, os.SEEK_END) - begin
            content.seek(begin)
            self._folder.put_content(name, content)
            self.put_bytes += size

    @override
    def delete(self, names: Iterable[str]) -> None:
        with self._doing("delete files"):
            self._folder.delete(names)

    @contextlib.contextmanager
    def _doing(self, action: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(self._folder, UrlFolder):  # its errors say what was done
                raise CheckpointStorageError(self._place, str(error)) from error
            raise CheckpointFolderError(self._place, f"could not {action}: {error}") from error


class Subfolder(CheckpointStorage):
    """A subfolder, which is removed with all that is in it when it is not needed any more.

    It has no files then, and raises a FencedError if one is created, unless it is one of an object
    store.

    Args:
        folder: The subfolder.
        place: Its path or URL.
        outer: The folder in which it is.
    """

    def __init__(self, folder: Folder, place: str, outer: CheckpointStorage) -> None:
        super().__init__(folder, place)
        self._outer = outer

    @override
    def names(self) -> Sequence[str]:
        try:
            return super().names()
        except CheckpointStorageError as error:
            if self._was_removed(error):
                return ()
            raise

    @override
    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        try:
            return super().create(name, data, after)
        except CheckpointStorageError as error:
            if self._was_removed(error):
                raise FencedError(1, 0) from None
            raise

    def _was_removed(self, error: CheckpointStorageError) -> bool:
        """Whether it was removed, after an error. Another error says nothing of what is there.

        If the outer folder is missing, too, that is not mounted.
        """
        is_missing = isinstance(error.__cause__, FileNotFoundError)
        return is_missing and self._outer.exists() and not self.exists()
