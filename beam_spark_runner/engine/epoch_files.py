"""Where tasks of an epoch store files: deltas, panes of side inputs, rows; and local copies."""

import contextlib
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.shared_file import SharedFile, file_in
from beam_spark_runner.harness.private_folder import private_folder
from beam_spark_runner.storage.folder import Folder
from beam_spark_runner.storage.folder_at import folder_at
from beam_spark_runner.storage.mounted_folder import MountedFolder
from beam_spark_runner.storage.urls import is_url


def folder_of_epochs(places: ShardLocations) -> Folder:
    """Return the folder of the files that manifests name."""
    if not is_url(places.deltas):
        return folder_at(places.deltas, syncs=places.tasks_sync)
    return folder_at(places.deltas, places.store, scratch=str(scratch_folder(places)))


def shared_file(places: ShardLocations, name: str) -> SharedFile:
    """Return a file that a task has stored, for random access."""
    return file_in(folder_of_epochs(places), name)


@contextlib.contextmanager
def new_file(places: ShardLocations, name: str) -> Iterator[tuple[Path, Callable[[], object]]]:
    """Return the path to write a file to, and a function that stores it once it is complete.

    In a mounted folder, it is not synced, and has its name from the beginning.
    """
    folder = folder_of_epochs(places)
    if isinstance(folder, MountedFolder):
        yield Path(folder.path_of(name)), _do_nothing
        return
    with tempfile.TemporaryDirectory(prefix="rows-", dir=scratch_folder(places)) as scratch:
        path = Path(scratch, name)
        yield path, functools.partial(folder.put, name, path)


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


def _do_nothing() -> None: ...
