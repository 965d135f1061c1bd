"""The folders of a program that its Python workers on the same machine use, too."""

import contextlib
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator


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
    previous = os.open(".", os.O_RDONLY)  # the directory stays reachable even if it is removed
    try:
        os.chdir(folder)
        try:
            yield
        finally:
            os.fchdir(previous)
    finally:
        os.close(previous)


def import_path() -> list[str]:
    """Return the entries of this process's import path that its Python workers would not have."""
    own = {
        os.path.realpath(path)
        for name, path in sysconfig.get_paths().items()
        if name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
    entries = []
    is_nowhere = working_folder() is None
    for entry in sys.path:
        if is_nowhere and not os.path.isabs(entry):
            continue
        path = os.path.realpath(entry)
        is_own = path in own or path.endswith("lib-dynload") or path.startswith(sys.base_prefix)
        if os.path.exists(path) and not is_own and path not in entries:
            entries.append(path)
    return entries


def extend_import_path(entries: Iterable[str]) -> None:
    """Let this process find the modules that a program finds, after its own."""
    sys.path += [entry for entry in entries if entry not in sys.path]
