"""Folders that are removed once nobody uses them, also if their processes were killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path


class LockedFolder:
    """A new folder, locked as long as this process lives, or one that inherits the lock.

    The kernel holds the lock for all processes that have its descriptor, however they end. Folders
    whose lock nobody holds any more are removed when the next one is made.

    Args:
        root: Where it is made, and where others are.
        prefix: Begins the names of all of them.

    Attributes:
        path: Its path.
        lock: The descriptor that holds the lock.

    Raises:
        OSError: It cannot be made, or its file system has no locks.
    """

    def __init__(self, root: Path, prefix: str) -> None:
        remove_unlocked(root, prefix)
        self.path, self.lock = _made(root, prefix)

    def remove(self) -> None:
        """Remove it with all files. Those who used it have ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def remove_unlocked(root: Path, prefix: str) -> None:
    """Remove the folders that killed processes have left; see ``LockedFolder``."""
    for left in root.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # it is in use, or another process removes it
            lock = _locked(left)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)


def _made(root: Path, prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
        try:
            return path, _locked(path)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process has found it before it was locked, and removes it
        except BaseException:
            path.rmdir()
            raise


def _locked(path: Path) -> int:
    """Return a descriptor that holds the lock of a folder.

    Raises:
        BlockingIOError: It is in use.
        FileNotFoundError: It was removed.
        OSError: It cannot be locked.
    """
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.stat()
    except BaseException:
        os.close(lock)
        raise
    return lock
