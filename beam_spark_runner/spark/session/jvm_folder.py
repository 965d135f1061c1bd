"""A folder for the temporary files of one JVM, which does not outlive it for long.

A JVM that ends by itself empties its folder and removes it. One that is killed, or ends while Spark
starts in it, leaves files; then whoever waits for its end removes them, or the next start does.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from beam_spark_runner.harness.private_folder import private_folder

_PREFIX = "jvm-"


class JvmFolder:
    """A new folder, locked as long as this process or the JVM runs, however they end.

    The kernel holds the lock for all processes that have inherited it: the JVM by ``lock``, forks
    of this process by themselves.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self) -> None:
        root = private_folder(Path(tempfile.gettempdir()) / f"beam-spark-{os.geteuid()}")
        _remove_left_ones(root)
        self.path, self.lock = _made(root)
        """``lock`` is a descriptor, for the JVM to inherit."""

    def remove(self) -> None:
        """Remove it with all files. The JVM has ended, or never started."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def _made(root: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        with contextlib.suppress(OSError):  # another start has found it before it was locked
            return path, _locked(path)


def _locked(path: Path) -> int:
    """Return a descriptor that holds the lock of a folder.

    Raises:
        OSError: It is in use, or has been removed.
    """
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.stat()
    except BaseException:
        os.close(lock)
        raise
    return lock


def _remove_left_ones(root: Path) -> None:
    for left in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # it is in use, or another start removes it
            lock = _locked(left)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)
