"""The working folder of this process."""

import contextlib
import os
from collections.abc import Iterator


def working_folder() -> str | None:
    """Return this process's; None if it has been removed, so that relative paths mean nothing."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def working_in(folder: str) -> Iterator[None]:
    """Let ``folder`` be this process's for a while.

    Raises:
        OSError: it is not there.
    """
    before = os.open(".", os.O_RDONLY)  # by which it can be found even if it is removed
    try:
        os.chdir(folder)
        try:
            yield
        finally:
            os.fchdir(before)
    finally:
        os.close(before)
