"""The folder of a bounded job that can be continued: its manifests, and its tasks' output."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from beam_spark_runner.job.files.checkpoint_storage import CheckpointStorage, Subfolder
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.recovery.job_folders import folder_name
from beam_spark_runner.storage.folder import Folder, Settings
from beam_spark_runner.storage.folder_at import folder_at, settings_of_tasks
from beam_spark_runner.storage.urls import is_url

_READS_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class JobFolderAt:
    """See ``JobFolder`` and ``JobFolders``.

    All methods raise a ``CheckpointStorageError`` if the folder cannot be read or written.

    Attributes:
        root: The path of the folder, or its URL as ``options.values.checkpoint_folder`` returns it.
        settings: Settings of the clients of driver and tasks.
        outer: The folder of which it is a subfolder; empty: it is none.
    """

    root: str
    settings: Settings = ()
    outer: str = ""

    @property
    def storage(self) -> CheckpointStorage:
        """The storage of manifests and fences."""
        folder = folder_at(self.root, self.settings)
        if not self.outer:
            return CheckpointStorage(folder, self.root)
        outer = CheckpointStorage(folder_at(self.outer, self.settings), self.outer)
        return Subfolder(folder, self.root, outer)

    def folders(self) -> Sequence[str]:
        """See ``JobFolders``."""
        return self.storage.folders()

    def of_job(self, job: str) -> "JobFolderAt":
        """See ``JobFolders``."""
        if not job:
            return self
        return JobFolderAt(self.place(folder_name(job)), self.settings, self.root)

    def place(self, folder: str) -> str:
        """See ``JobFolder``."""
        return f"{self.root}/{folder}"

    def make(self, folder: str) -> Folder:
        """See ``JobFolder``."""
        subfolder = folder_at(self.place(folder), self.settings)
        self._storage_of(folder).make_folder()
        return subfolder

    def names(self, folder: str) -> Sequence[str]:
        """See ``WorkFolders``."""
        storage = self._storage_of(folder)
        return storage.names() if storage.exists() else ()

    def read(self, folder: str, names: Sequence[str]) -> Sequence[bytes]:
        """See ``JobFolder``."""
        if not names:
            return ()
        storage = self._storage_of(folder)
        with ThreadPoolExecutor(min(len(names), _READS_AT_ONCE)) as threads:
            return list(threads.map(storage.read_if_there, names))

    def remove(self, folder: str) -> None:
        """See ``WorkFolders``."""
        self._storage_of(folder).remove()

    def _storage_of(self, folder: str) -> CheckpointStorage:
        place = self.place(folder)
        return CheckpointStorage(folder_at(place, self.settings), place)


def job_folder_of(config: RunnerConfig) -> JobFolderAt | None:
    """Return where a batch job with ``--batch_job_recovery`` is stored; None: it has none."""
    if not config.recovers_batch:
        return None
    if config.server_folder is not None:
        return JobFolderAt(config.server_folder)
    if config.checkpoint_dir is None:
        return None
    place = config.checkpoint_dir
    root = place if is_url(place) else str(Path(place).absolute())
    return JobFolderAt(root, settings_of_tasks(root, config.store_settings))
