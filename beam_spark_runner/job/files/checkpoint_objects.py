"""A folder of an object store or HDFS in which a streaming pipeline commits its epochs."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

from beam_spark_runner.core.errors import CheckpointStorageError, OptionsError
from beam_spark_runner.recovery.savepoint import CopyingStorage
from beam_spark_runner.state.url_folder import UrlFolder

_PROBE = "creates.probe"


class CheckpointObjects(CopyingStorage):
    """A folder of an object store or HDFS as ``CopyingStorage``. All that it stores is durable.

    Args:
        folder: The folder, with its client.
    """

    def __init__(self, folder: UrlFolder) -> None:
        self._folder = folder

    def check(self, option: str) -> None:
        """Make the folder, and check that a file can be created only once, with a probe file.

        Args:
            option: The option that names the folder, for errors.

        Raises:
            CheckpointStorageError: The storage cannot be reached, or denies access.
            OptionsError: The storage creates a file that exists, so that two drivers could commit
                the same epoch.
        """
        with self._doing():
            self._folder.make()
        self.create(_PROBE, b"")
        if self.create(_PROBE, b""):
            raise OptionsError(
                option,
                f"the store at {self._folder.url} {self._folder.two_may_create}, so that two "
                "drivers could commit the same epoch; use another store, or a folder that all "
                "hosts mount",
            )

    def exists(self) -> bool:
        """Return whether the folder exists; see ``UrlFolder.exists``.

        Raises:
            CheckpointStorageError: The storage cannot be reached, or denies access.
        """
        with self._doing():
            return self._folder.exists()

    def names(self) -> Sequence[str]:
        """See ``Storage.names``."""
        with self._doing():
            return self._folder.names()

    def read(self, name: str) -> bytes:
        """See ``Storage.read``."""
        with self._doing():
            return self._folder.read(name)

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        """See ``Storage.create``."""
        with self._doing():
            return self._folder.create(name, data)

    def delete(self, names: Iterable[str]) -> None:
        """See ``DeletingStorage.delete``."""
        with self._doing():
            self._folder.delete(names)

    def open(self, name: str) -> BinaryIO | None:
        """See ``CopyingStorage.open``."""
        with self._doing():
            try:
                return self._folder.open(name)
            except FileNotFoundError:
                return None

    def put(self, name: str, content: BinaryIO) -> None:
        """See ``CopyingStorage.put``."""
        with self._doing():
            self._folder.put_content(name, content)

    @contextlib.contextmanager
    def _doing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CheckpointStorageError(self._folder.url, str(error)) from error
