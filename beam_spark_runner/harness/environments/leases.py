"""Folders that the processes of an executor share, and that are removed once they are unused.

A folder is a symbolic link to its content, so that it is removed atomically. Next to the link is a
file on which its users hold a shared lock, which the kernel releases however they end. The file's
modification time is that of the last use.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

KEPT_S = 3600.0
"""How long an unused folder is kept, in seconds, since the next job may need the same one."""


@contextlib.contextmanager
def lease(place: Path) -> Iterator[None]:
    """Prevent a folder from being removed; it need not exist yet. Waits for a running removal."""
    with _of_users(place).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os.utime(file.fileno())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Spark has removed its folders
                os.utime(file.fileno())


def remove_unused(root: Path) -> None:
    """Remove the folders below ``root`` that have no lease, and had none for ``KEPT_S``."""
    for place in root.iterdir():
        if place.is_symlink():
            with contextlib.suppress(OSError):  # it is in use, or another process removes it
                _remove_unused(place)


def _remove_unused(place: Path) -> None:
    with _of_users(place).open("r+") as file:
        if os.fstat(file.fileno()).st_mtime > time.time() - KEPT_S:
            return
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_mtime > time.time() - KEPT_S:  # used meanwhile
            return
        content = place.resolve()
        place.unlink()
        shutil.rmtree(content, ignore_errors=True)


def _of_users(place: Path) -> Path:
    return place.with_name(f"{place.name}.users")
