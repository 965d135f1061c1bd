"""The folders of simulated jobs, as one start of a driver sees them: see ``JobFolder``."""

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from typing_extensions import override

from beam_spark_runner.core.errors import CheckpointStorageError
from beam_spark_runner.recovery.commit import DeletingStorage
from beam_spark_runner.recovery.job_folders import folder_name
from beam_spark_runner.storage.folder import Settings
from tests.unit.simulation.batch.rows import Stored
from tests.unit.simulation.storage import Answers, Files, StorageError, T

ROOT = "job"


class StoredFolders:
    """What is stored of jobs, for all starts of their drivers, and all tasks.

    Attributes:
        root: The submission, and the files next to manifests, with the subfolder of their job.
        work: The files of Spark jobs, by folder.
        rows: The rows in files of tasks, by folder and name, whether they are still there or not.
    """

    def __init__(self) -> None:
        self.root = Files()
        self.work: dict[str, Files] = {}
        self.rows: dict[tuple[str, str], Stored] = {}

    def remove(self, folder: str) -> None:
        """Remove a folder with output of tasks, with the rows in it."""
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
    """See ``JobFolder`` and ``JobFolders``: as in an object store, a folder exists if it has files.

    Args:
        folders: What is stored.
        answers: Through which the driver sees it.
        random: Decides what a listing has of what changes meanwhile.
        path: Its path, with a slash at the end; empty: the folder of the submission.
        has_subfolders: Whether jobs have subfolders.
    """

    settings: Settings = ()

    def __init__(
        self,
        folders: StoredFolders,
        answers: DriverAnswers,
        random: Random,
        path: str = "",
        *,
        has_subfolders: bool = True,
    ) -> None:
        self._folders, self._answers, self._random = folders, answers, random
        self._path, self._has_subfolders = path, has_subfolders

    @property
    def storage(self) -> DeletingStorage:
        return Below(self._answers, self._path)

    def of_job(self, job: str) -> "SimulatedFolder":
        if not job or not self._has_subfolders:
            return self
        path = f"{folder_name(job)}/"
        return SimulatedFolder(self._folders, self._answers, self._random, path)

    def folders(self) -> Iterable[str]:
        names = (*self._answers.names(), *self._answers.ask(lambda: tuple(self._folders.work)))
        below = [name.removeprefix(self._path) for name in names if name.startswith(self._path)]
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def place(self, folder: str) -> str:
        return self._path + folder

    def make(self, folder: str) -> Any:
        return self._answers.ask(lambda: self._folders.work.setdefault(self.place(folder), Files()))

    def names(self, folder: str) -> Sequence[str]:
        def names() -> frozenset[str]:
            found = self._folders.work.get(self.place(folder))
            return frozenset() if found is None else frozenset(found.content)

        first = self._answers.ask(names)
        last = self._answers.ask(names)
        doubtful = [name for name in sorted(first ^ last) if self._random.random() < 0.5]
        return (*sorted(first & last), *doubtful)

    def read(self, folder: str, names: Sequence[str]) -> Sequence[bytes]:
        def read(name: str) -> bytes:
            found = self._folders.work.get(self.place(folder))
            return b"" if found is None else found.content.get(name, b"")

        return [self._answers.ask(lambda name=name: read(name)) for name in names]  # type: ignore[misc]

    def remove(self, folder: str) -> None:
        place = self.place(folder)
        work = self._answers.ask(lambda: tuple(self._folders.work))
        for each in work:
            if each == place or each.startswith(f"{place}/"):
                self._answers.ask(lambda each=each: self._folders.remove(each))  # type: ignore[misc]
        below = [name for name in self._answers.names() if name.startswith(f"{place}/")]
        self._answers.delete(below)


class Below:
    """The files in a subfolder; see ``DeletingStorage``.

    Args:
        answers: Of all files.
        path: Of the subfolder, with a slash at the end; empty: of the folder itself.
    """

    def __init__(self, answers: DriverAnswers, path: str) -> None:
        self._answers, self._path = answers, path

    def names(self) -> Sequence[str]:
        names = [name for name in self._answers.names() if name.startswith(self._path)]
        below = [name.removeprefix(self._path) for name in names]
        return [name for name in below if "/" not in name]

    def read(self, name: str) -> bytes:
        return self._answers.read(self._path + name)

    def create(self, name: str, data: bytes, after: Iterable[str] = ()) -> bool:
        return self._answers.create(self._path + name, data, after)

    def delete(self, names: Iterable[str]) -> None:
        self._answers.delete([self._path + name for name in names])
