"""Where tasks of an epoch store files: deltas, panes of side inputs, rows; and local copies."""

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from beam_spark_runner.core.storage_urls import is_url
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.shared_file import MountedFile, SharedFile, StoredFile
from beam_spark_runner.harness.private_folder import private_folder
from beam_spark_runner.state.delta_files import DeltaFiles, FolderOfDeltas
from beam_spark_runner.state.folder_at import folder_at
from beam_spark_runner.state.url_folder import UrlFolder


def delta_files(places: ShardLocations) -> DeltaFiles:
    """Return the store of the files that manifests name."""
    if is_url(places.deltas):
        return _url_folder(places)
    return FolderOfDeltas(Path(places.deltas), syncs=places.tasks_sync)


def shared_file(places: ShardLocations, name: str) -> SharedFile:
    """Return a file that a task has stored, for random access."""
    if is_url(places.deltas):
        return StoredFile(_Stored(_url_folder(places), name))
    return MountedFile(str(Path(places.deltas, name)))


@contextlib.contextmanager
def local_path(places: ShardLocations, name: str) -> Iterator[Path]:
    """Return the path of a file that a task has stored, or of a temporary local copy of it.

    Raises:
        OSError: the file cannot be downloaded.
    """
    if is_url(places.deltas):
        with _url_folder(places).downloaded(name) as path:
            yield Path(path)
    else:
        yield Path(places.deltas, name)


@contextlib.contextmanager
def new_file(places: ShardLocations, name: str) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Return the path to write a file to, and a function that stores it once it is complete.

    In a folder, it is not synced, and has its name from the beginning.
    """
    if not is_url(places.deltas):
        yield Path(places.deltas, name), _do_nothing
        return
    stored = _url_folder(places)
    with tempfile.TemporaryDirectory(prefix="rows-", dir=stored.scratch) as folder:
        path = Path(folder, name)
        yield path, functools.partial(stored.put, name, path)


def scratch_folder(places: ShardLocations) -> Path:
    """Return a folder for temporary files, which are deleted even if this process is killed."""
    scratch = folder_of_copies(places)
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


def folder_of_copies(places: ShardLocations) -> Path:
    """Return the folder of a job's local copies: one for all executors of the host.

    It is deleted with the job's folder or, in Spark's local folder, with the application.

    Raises:
        PermissionError: Another user has made it.
    """
    if places.local is not None:  # in the job's folder, which is private
        return Path(places.local)
    local = Path(os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir())
    if local.name.startswith("blockmgr-"):  # the executor's, in the application's
        local = local.parent
    job = hashlib.blake2b(places.deltas.encode(), digest_size=8).hexdigest()
    return private_folder(local / f"beam-shards-{job}")


@dataclass(frozen=True, slots=True)
class _Stored:
    """See ``Downloadable``."""

    folder: UrlFolder
    name: str

    def downloaded(self) -> contextlib.AbstractContextManager[str]:
        return self.folder.downloaded(self.name)


def _url_folder(places: ShardLocations) -> UrlFolder:
    return folder_at(places.deltas, places.store, str(scratch_folder(places)))


def _do_nothing() -> None: ...
