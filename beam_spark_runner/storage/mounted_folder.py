"""A folder of this machine, or one that all hosts mount."""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from typing_extensions import override

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.storage.folder import Folder

_MAX_SYNCS_AT_ONCE = 16  # files that are synced in parallel


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

    @override
    def __str__(self) -> str:
        return (
            f"an epoch was not committed, since the disk may have lost {self.path}: "
            f"{self.problem}. Once the disk works, start the pipeline again: it continues after "
            "the last committed epoch"
        )


@dataclass(frozen=True, slots=True)
class MountedFolder(Folder):
    """See ``Folder``.

    Attributes:
        path: The path of the folder, which is the same on all machines. Only ``make`` creates it:
            its mount may be missing.
        syncs: Whether files are made durable. ``put`` may leave that to ``create`` of a driver on
            the same machine; no crash of the machine matters to files that end with their job.
    """

    path: str
    syncs: bool = True

    @override
    def __truediv__(self, name: str) -> "MountedFolder":
        return MountedFolder(self.path_of(name), self.syncs)

    def path_of(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self.path, name)

    @override
    def open(self, name: str) -> BinaryIO:
        return open(self.path_of(name), "rb")

    @contextlib.contextmanager
    @override
    def local(self, name: str) -> Iterator[str]:
        yield self.path_of(name)

    @contextlib.contextmanager
    @override
    def new_file(self, name: str) -> Iterator[str]:
        """The file has its name from the beginning."""
        yield self.path_of(name)

    @override
    def put(self, name: str, local: Path) -> None:
        with local.open("rb") as content:
            self._write(name, content, syncs=self.syncs)
        if self.syncs:  # the new name is an entry of the folder
            _sync(self.path)

    @override
    def put_content(self, name: str, content: BinaryIO) -> None:
        self._write(name, content, syncs=False)

    def _write(self, name: str, content: BinaryIO, *, syncs: bool) -> None:
        hidden = self._hidden(name)
        try:
            with open(hidden, "xb") as target:
                shutil.copyfileobj(content, target, 1 << 20)
                if syncs:
                    target.flush()
                    os.fsync(target.fileno())
            os.rename(hidden, self.path_of(name))
        finally:
            Path(hidden).unlink(missing_ok=True)

    @override
    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        """A hard link makes a complete file appear under its name, or fails if there is a file of
        that name.

        Raises:
            NotDurableError: One of the files ``after`` may be lost.
        """
        others = [self.path_of(other) for other in after] if self.syncs else []
        if others:
            others.append(self.path)  # the names of files are durable when the folder is
        hidden = self._hidden(name)
        try:
            Path(hidden).write_bytes(data)
            if self.syncs:
                _sync_all(hidden, others)
            try:
                os.link(hidden, self.path_of(name))
            except OSError as error:
                # NFS may repeat a request whose answer was lost, or report an error although
                # the link was made: then the file has two links, and this call has made it.
                if os.stat(hidden).st_nlink != 2:
                    if isinstance(error, FileExistsError):
                        return False
                    raise
        finally:
            Path(hidden).unlink(missing_ok=True)
        if self.syncs:  # the new name is an entry of the folder
            _sync(self.path)
        return True

    def _hidden(self, name: str) -> str:
        return self.path_of(f".{name}.{secrets.token_hex(4)}")

    @override
    def read(self, name: str) -> bytes:
        return Path(self.path, name).read_bytes()

    @override
    def names(self) -> Sequence[str]:
        return [entry.name for entry in os.scandir(self.path) if not entry.is_dir()]

    @override
    def folders(self) -> Sequence[str]:
        return [entry.name for entry in os.scandir(self.path) if entry.is_dir()]

    @override
    def delete(self, names: Iterable[str]) -> None:
        """Deletions need not be durable: files that reappear after a crash are deleted again."""
        for name in names:
            Path(self.path, name).unlink(missing_ok=True)

    @override
    def make(self) -> None:
        os.makedirs(self.path, exist_ok=True)

    @override
    def exists(self) -> bool:
        return os.path.isdir(self.path)

    @override
    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self.path)


def _sync_all(own: str, others: Sequence[str]) -> None:
    """Sync files in parallel: a disk takes about as long for all as for one.

    Args:
        own: The caller's own file, which it can write again.
        others: The files that tasks have written, and their folder.

    Raises:
        NotDurableError: The sync of one of the others failed.
        OSError: The sync of ``own`` failed, or a file is missing.
    """
    with ThreadPoolExecutor(min(1 + len(others), _MAX_SYNCS_AT_ONCE)) as threads:
        own_sync = threads.submit(_sync, own)
        syncs = {other: threads.submit(_sync, other) for other in others}
    # The others come first: a disk reports a loss only once, so that no other error may hide it.
    for other, sync in syncs.items():
        error = sync.exception()
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise NotDurableError(other, str(error)) from error
    for sync in (*syncs.values(), own_sync):
        sync.result()  # a missing file was deleted by another driver, which has taken over


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
