"""A folder of dated savepoints, of which the newest ones are kept.

Each savepoint is in a subfolder that is named by its time, next to which are these files:

    20261130T112000000Z.begun       it is being made
    20261130T112000000Z.savepoint   it is complete; the file has the number of its epoch
    20261130T112000000Z.removing    it is being removed, and complete no more
"""

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage
from beam_spark_runner.job.files.shard_places import save, storage_at
from beam_spark_runner.observing.made_savepoints import MadeSavepoint
from beam_spark_runner.recovery.savepoint_copy import CopyingStorage, pins
from beam_spark_runner.storage.folder import Settings
from beam_spark_runner.storage.folder_at import folder_at

_NAME = re.compile(r"(?P<time>\d{8}T\d{9}Z)\.(?P<kind>begun|savepoint|removing)")
_FORM = "%Y%m%dT%H%M%S%fZ"
_ABANDONED_AFTER = timedelta(days=1)


class CompleteSavepoint(NamedTuple):
    """A savepoint that is complete.

    Attributes:
        path: Its folder, or the URL of that.
        epoch: The number of its epoch.
        size_bytes: The size of what was copied. 0: not known.
    """

    path: str
    epoch: int
    size_bytes: int = 0


class SavepointFolder:
    """The savepoints of one pipeline. Threads and processes: any.

    Args:
        root: The folder, or its URL as ``options.values.checkpoint_folder`` returns it.
        settings: The settings of the store's client; see ``UrlFolder``.
        option: The option that names it, for errors.

    Methods raise a ``CheckpointStorageError`` if the folder cannot be read or written.
    """

    def __init__(self, root: str, settings: Settings = (), option: str = "savepoint_dir") -> None:
        self._root, self._settings, self._option = root, settings, option
        self._storage = CheckpointStorage(folder_at(root, settings), root)

    def complete(self) -> list[MadeSavepoint]:
        """Return the savepoints that are complete, the oldest first, without their sizes."""
        savepoints = []
        for name in self._complete() if self._storage.exists() else ():
            # Empty: it was removed meanwhile.
            if epoch := self._storage.read_if_there(f"{name}.savepoint"):
                begun_s = _time_of(name).timestamp()
                savepoints.append(MadeSavepoint(self._place(name), int(epoch), None, begun_s))
        return savepoints

    def make(self, source: CopyingStorage, now_s: float) -> CompleteSavepoint:
        """Make a savepoint.

        Args:
            source: The folder in which the pipeline commits its epochs.
            now_s: The current Unix time, which no other savepoint of the folder has.

        Raises:
            RunnerError: See ``shard_places.save``.
        """
        self._storage.make(self._option)
        moment = datetime.fromtimestamp(round(now_s, 3), timezone.utc).strftime(_FORM)
        name = f"{moment[:-4]}Z"  # milliseconds
        self._storage.create(f"{name}.begun", b"")
        target = storage_at(self._place(name), self._option, self._settings)
        epoch = save(source, target)
        self._storage.create(f"{name}.savepoint", str(epoch).encode())
        self._storage.delete([f"{name}.begun"])
        return CompleteSavepoint(self._place(name), epoch, target.put_bytes)

    def retain(self, keep: int, standing_on: Collection[str], now_s: float) -> Sequence[str]:
        """Remove all savepoints but the newest ones, and what is left of incomplete ones.

        One that a pipeline begins from just now has a pin, and stays.

        Args:
            keep: How many stay.
            standing_on: The paths of others that stay.
            now_s: The current Unix time. What was begun a day before is not being made any more.

        Returns:
            The paths of those that were removed.
        """
        names = self._storage.names()
        now = datetime.fromtimestamp(now_s, timezone.utc)
        complete = self._complete()
        old = [
            name
            for name in complete[:-keep]
            if self._place(name) not in standing_on and not self._is_read(name)
        ]
        for name in old:
            self._storage.create(f"{name}.removing", b"")
        incomplete = _of_kind(names, "removing")
        incomplete += [
            name
            for name in _of_kind(names, "begun")
            if name not in complete and now - _time_of(name) > _ABANDONED_AFTER
        ]
        for name in {*old, *incomplete}:
            place = self._place(name)
            CheckpointStorage(folder_at(place, self._settings), place).remove()
            kinds = ("begun", "savepoint", "removing")  # the last one says what is left to do
            for kind in kinds:
                self._storage.delete([f"{name}.{kind}"])
        return [self._place(name) for name in old]

    def _complete(self) -> list[str]:
        names = self._storage.names()
        removing = set(_of_kind(names, "removing"))
        return [name for name in _of_kind(names, "savepoint") if name not in removing]

    def _is_read(self, name: str) -> bool:
        place = self._place(name)
        storage = CheckpointStorage(folder_at(place, self._settings), place)
        return bool(pins(storage.names()))

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"


def _of_kind(names: Collection[str], kind: str) -> list[str]:
    matches = map(_NAME.fullmatch, names)
    return sorted(match["time"] for match in matches if match and match["kind"] == kind)


def _time_of(name: str) -> datetime:
    # Python reads microseconds of three digits, too.
    return datetime.strptime(name, _FORM).replace(tzinfo=timezone.utc)
