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

_MAX_AT_ONCE = 16  # files that are synced in parallel


class CheckpointFolderError(CheckpointStorageError):
    """The folder cannot be read or written: it is full, unavailable, or access is denied."""

    def __str__(self) -> str:
        return f"the checkpoint folder {self.place} cannot be used: {self.problem}"


class NotDurableError(RunnerError):
    """An ``fsync`` of files that tasks have stored failed, so that they may be lost.

    It is not retried: a disk reports a loss only once, so that a second ``fsync`` may succeed.

    Args:
        path: The path of a file that may be lost.
        problem: The text of the ``OSError``.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path, self.problem = path, problem

    def __str__(self) -> str:
        return (
            f"an epoch was not committed, since the disk may have lost {self.path}: "
            f"{self.problem}. Once the disk works, start the pipeline again: it continues after "
            "the last committed epoch"
        )


class CheckpointFolder(CopyingStorage):
    """A mounted or local folder as ``CopyingStorage``. It is made if it is missing.

    ``create`` makes a hard link, which makes a complete file appear under its name, or fails if
    there is a file of that name.

    Args:
        folder: the folder.
        is_kept: whether it outlives the job: else no crash of the machine matters to its files.
    """

    def __init__(self, folder: Path, *, is_kept: bool = True) -> None:
        self._folder, self._is_kept = folder, is_kept
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
            NotDurableError: One of the files ``after`` may be lost.
        """
        others = [self._folder / other for other in after] if self._is_kept else []
        if others:
            others.append(self._folder)  # the names of files are durable when the folder is
        hidden = self._folder / f".{name}.{secrets.token_hex(4)}"
        with self._doing(f"create {name}"):
            try:
                hidden.write_bytes(data)
                if self._is_kept:
                    _sync_all(hidden, others)
                try:
                    os.link(hidden, self._folder / name)
                except OSError as error:
                    # NFS may repeat a request whose answer was lost, or report an error although
                    # the link was made: then the file has two links, and this call has made it.
                    if hidden.stat().st_nlink != 2:
                        if isinstance(error, FileExistsError):
                            return False
                        raise
            finally:
                hidden.unlink(missing_ok=True)
            if self._is_kept:  # the new name is part of the folder, not of the file
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
        """Delete files, as far as they exist.

        Deletions need not be durable: files that reappear after a crash are deleted again.
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
    """Sync files in parallel: a disk takes about as long for all as for one.

    Args:
        mine: The caller's own file, which it can write again.
        others: The files that tasks have written, and their folder.

    Raises:
        NotDurableError: The sync of one of the others failed.
        OSError: The sync of ``mine`` failed, or a file is missing.
    """
    with ThreadPoolExecutor(min(1 + len(others), _MAX_AT_ONCE)) as threads:
        mine_done = threads.submit(_sync, mine)
        syncing = {other: threads.submit(_sync, other) for other in others}
    # The others come first: a disk reports a loss only once, so that no other error may hide it.
    for other, done in syncing.items():
        error = done.exception()
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise NotDurableError(str(other), str(error)) from error
    for done in (*syncing.values(), mine_done):
        done.result()  # a missing file was deleted by another driver, which has taken over


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
