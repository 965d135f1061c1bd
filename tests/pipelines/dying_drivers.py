"""Drivers that die between any two changes of a job's folder."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from beam_spark_runner.storage.mounted_folder import MountedFolder

_CHANGES = ("create", "delete", "new_file", "put", "put_content", "make", "remove")


class Died(BaseException):
    """The driver is dead: nothing that it does from now on has an effect."""


class Deaths:
    """Lets a driver die at one of its changes of a folder.

    Args:
        folder: The folder.
        at: The number of the change, from 0. None: it does not die.
        is_done: Whether this change is made.
        within: The end of the paths of the folders whose changes count.

    Attributes:
        changes: What was changed so far: the name of the method, and its arguments.
    """

    def __init__(
        self, folder: Path, at: int | None = None, *, is_done: bool = False, within: str = ""
    ) -> None:
        self._folder, self._at, self._is_done = str(folder), at, is_done
        self._within = within
        self._lock = threading.Lock()
        self.changes: list[str] = []

    def has_died(self) -> bool:
        """Return whether the driver has come so far."""
        return self._at is not None and len(self.changes) > self._at

    @contextlib.contextmanager
    def striking(self) -> Iterator[None]:
        """Watch the changes that are made in this process."""
        with contextlib.ExitStack() as patched:
            for name in _CHANGES:
                real = getattr(MountedFolder, name)
                patched.enter_context(mock.patch.object(MountedFolder, name, self._watched(real)))
            yield

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(folder: MountedFolder, *arguments: Any, **named: Any) -> Any:
            if not (folder.path.startswith(self._folder) and folder.path.endswith(self._within)):
                return real(folder, *arguments, **named)
            with self._lock:
                if self.has_died():
                    raise Died
                place = folder.path.removeprefix(self._folder)
                self.changes.append(f"{real.__name__} {place} {arguments[:1]}")
                dies = self.has_died()
            if dies and not self._is_done:
                raise Died
            result = real(folder, *arguments, **named)
            if dies:
                raise Died
            return result

        return change
