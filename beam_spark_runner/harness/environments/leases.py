"""Folders that the processes of an executor share, and that go when nobody uses them any more.

A folder is a link to where its content is, so that it goes at once. Beside the link is a file on
which its users hold a shared lock, which the kernel takes back however they end, and whose time of
modification is that of the last use.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

KEPT_S = 3600.0
"""After its last use: the next job may want the same."""


@contextlib.contextmanager
def lease(place: Path) -> Iterator[None]:
    """Use a folder, which need not be there yet. Waits while it is being removed."""
    with _of_users(place).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        os.utime(file.fileno())
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Spark has removed its folders
                os.utime(file.fileno())


def remove_unused(root: Path) -> None:
    """Remove the folders below ``root`` that nobody uses, and nobody has used for an hour."""
    for place in root.iterdir():
        if place.is_symlink():
            with contextlib.suppress(OSError):  # another process removes it
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
