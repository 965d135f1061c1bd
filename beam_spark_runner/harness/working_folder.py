"""The working directory of this process."""

import contextlib
import os
from collections.abc import Iterator


def working_folder() -> str | None:
    """Return the working directory; None if it was removed, so that no relative path resolves."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return None


@contextlib.contextmanager
def working_in(folder: str) -> Iterator[None]:
    """Make ``folder`` the working directory of this process within a context.

    Raises:
        OSError: The folder cannot be entered.
    """
    before = os.open(".", os.O_RDONLY)  # the directory stays reachable even if it is removed
    try:
        os.chdir(folder)
        try:
            yield
        finally:
            os.fchdir(before)
    finally:
        os.close(before)
