"""A folder in which a streaming pipeline commits its epochs: local, or mounted by all hosts."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from beam_spark_runner.core.errors import CheckpointStorageError, RunnerError
from beam_spark_runner.recovery.savepoint import CopyingStorage

_MOST_AT_ONCE = 16  # files that are made durable


class CheckpointFolderError(CheckpointStorageError):
    """The folder cannot be read or written: it is full, unavailable, or access is denied."""

    def __str__(self) -> str:
        return f"the checkpoint folder {self.place} cannot be used: {self.problem}"


class NotDurableError(RunnerError):
    """A disk did not confirm what tasks have stored, and may have dropped it.

    Trying again would prove nothing: the disk need not report the same loss twice.

    Args:
        path: of a file that may be lost.
        problem: what the disk reported.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return (
            f"an epoch was not committed, since the disk may have lost {self.path}: "
            f"{self.problem}. Once the disk works, start the pipeline again: it goes on from its "
            "last commit"
        )


class CheckpointFolder(CopyingStorage):
    """See ``CopyingStorage``. The folder is made if it is missing.

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

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        """See ``Storage.create``.

        Raises:
            NotDurableError: one of the others' files may be lost.
        """
        others = [self._folder / other for other in after]
        if others:
            others.append(self._folder)  # it has their names
        hidden = self._folder / f".{name}.{secrets.token_hex(4)}"
        with self._doing(f"create {name}"):
            try:
                hidden.write_bytes(data)
                _sync_all(hidden, others)
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
            _sync(self._folder)
        return True

    def open(self, name: str) -> BinaryIO | None:
        """See ``CopyingStorage.open``."""
        with self._doing(f"read {name}"):
            try:
                return (self._folder / name).open("rb")
            except FileNotFoundError:
                return None

    def put(self, name: str, content: BinaryIO) -> None:
        """See ``CopyingStorage.put``."""
        hidden = self._folder / f".{name}.{secrets.token_hex(4)}"
        with self._doing(f"write {name}"):
            try:
                with hidden.open("xb") as target:
                    shutil.copyfileobj(content, target, 1 << 20)
                hidden.rename(self._folder / name)
            finally:
                hidden.unlink(missing_ok=True)

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


def _sync_all(mine: Path, others: Sequence[Path]) -> None:
    """Make files durable, side by side: a disk takes about as long for all as for one.

    Args:
        mine: the caller's own file, which can be written once more.
        others: the folder of the others' files, and these.
    """
    with ThreadPoolExecutor(min(1 + len(others), _MOST_AT_ONCE)) as threads:
        mine_done = threads.submit(_sync, mine)
        syncing = {other: threads.submit(_sync, other) for other in others}
    # All are looked at: the disk reports a loss once, so no other error may hide it.
    for other, done in syncing.items():
        error = done.exception()
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise NotDurableError(str(other), str(error)) from error
    for done in (*syncing.values(), mine_done):
        done.result()  # what is not there was deleted by a driver that has taken over


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
