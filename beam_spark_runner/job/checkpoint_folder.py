"""A folder in which a streaming pipeline commits its epochs: local, or mounted by all hosts."""

import contextlib
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.recovery.commit import Storage


class CheckpointFolderError(CheckpointStorageError):
    """The folder cannot be read or written: it is full, unavailable, or access is denied."""

    def __str__(self) -> str:
        return f"the checkpoint folder {self.place} cannot be used: {self.problem}"


class CheckpointFolder(Storage):
    """See ``Storage``. The folder is made if it is missing.

    A hard link makes a file appear under its name, whole, and only if there is none of that name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with self._doing("make it"):
            folder.mkdir(parents=True, exist_ok=True)

    def names(self) -> Sequence[str]:
        """See ``Storage.names``."""
        with self._doing("list it"):
            return [entry.name for entry in os.scandir(self._folder)]

    def read(self, name: str) -> bytes:
        """See ``Storage.read``."""
        with self._doing(f"read {name}"):
            return (self._folder / name).read_bytes()

    def create(self, name: str, data: bytes) -> bool:
        """See ``Storage.create``."""
        hidden = self._folder / f".{name}.{secrets.token_hex(4)}"
        with self._doing(f"create {name}"):
            try:
                with hidden.open("xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                try:
                    os.link(hidden, self._folder / name)
                except OSError as error:
                    # NFS may repeat a request whose answer was lost, or give up on the answer:
                    # then the link is ours.
                    if hidden.stat().st_nlink != 2:
                        if isinstance(error, FileExistsError):
                            return False
                        raise
            finally:
                hidden.unlink(missing_ok=True)
            # The new name is part of the folder, not of the file.
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return True

    def delete(self, names: Iterable[str]) -> None:
        """Delete files. Those that are gone already are no error.

        It need not be durable: what comes back after a crash is deleted once more.
        """
        for name in names:
            with self._doing(f"delete {name}"):
                (self._folder / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CheckpointFolderError(str(self._folder), f"could not {what}: {error}") from error
