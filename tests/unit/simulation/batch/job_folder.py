"""The folder of a simulated job, as one start of its driver sees it: see ``JobFolder``."""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.storage.folder import Settings
from tests.unit.simulation.batch.rows import Stored
from tests.unit.simulation.storage import Answers, Files, StorageError, T

ROOT = "job"


class StoredFolders:
    """What is stored of a job, for all starts of its driver, and all tasks.

    Attributes:
        root: The files next to its manifests.
        work: The files of its Spark jobs, by folder.
        rows: The rows in files of tasks, by folder and name, whether they are still there or not.
    """

    def __init__(self) -> None:
        self.root = Files()
        self.work: dict[str, Files] = {}
        self.rows: dict[tuple[str, str], Stored] = {}

    def remove(self, folder: str) -> None:
        """Remove a folder, with the rows in it."""
        if self.work.pop(folder, None) is not None:
            for (place, _), rows in self.rows.items():
                rows.is_lost |= place == folder


class DriverAnswers(Answers):
    """See ``Answers``; its errors are those of storage that is away.

    Attributes:
        before_commit: Is called once, before the next manifest is created.
    """

    before_commit: Callable[[], None] | None = None

    @override
    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        if name.endswith(".manifest") and self.before_commit is not None:
            before_commit, self.before_commit = self.before_commit, None
            before_commit()
            self.pause()
        return super().create(name, data, after)

    @override
    def _answer(self, ask: Callable[[], T]) -> T:
        try:
            return super()._answer(ask)
        except StorageError as error:
            raise CheckpointStorageError(ROOT, str(error)) from error

    def ask(self, ask: Callable[[], T]) -> T:
        """Ask for something of another folder, which takes a while."""
        return self._answer(ask)


class SimulatedFolder:
    """See ``JobFolder``.

    Args:
        folders: What is stored.
        storage: Through which the driver sees it.
        random: Decides what a listing has of what changes meanwhile.
    """

    settings: Settings = ()

    def __init__(self, folders: StoredFolders, storage: DriverAnswers, random: Random) -> None:
        self._folders, self._storage, self._random = folders, storage, random

    def place(self, folder: str) -> str:
        return folder

    def make(self, folder: str) -> Any:
        return self._storage.ask(lambda: self._folders.work.setdefault(folder, Files()))

    def names(self, folder: str) -> Sequence[str]:
        def names() -> frozenset[str]:
            found = self._folders.work.get(folder)
            return frozenset() if found is None else frozenset(found.content)

        first = self._storage.ask(names)
        last = self._storage.ask(names)
        doubtful = [name for name in sorted(first ^ last) if self._random.random() < 0.5]
        return (*sorted(first & last), *doubtful)

    def read(self, folder: str, names: Sequence[str]) -> Sequence[bytes]:
        def read(name: str) -> bytes:
            found = self._folders.work.get(folder)
            return b"" if found is None else found.content.get(name, b"")

        return [self._storage.ask(lambda name=name: read(name)) for name in names]  # type: ignore[misc]

    def remove(self, folder: str) -> None:
        self._storage.ask(lambda: self._folders.remove(folder))
