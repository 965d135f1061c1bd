"""The id of a job, and the folder that is derived from it."""

import tempfile
import uuid
from pathlib import Path

from beam_spark_runner.core.storage_urls import is_url
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.spark.session.handle import SessionHandle


def new_job_id() -> str:
    """Return an id that no other job has: 12 hexadecimal digits."""
    return uuid.uuid4().hex[:12]


def name_of(job_id: str) -> str:
    """Return the name of a job's folder, wherever it is."""
    return f"beam-{job_id}"


def folder_of(job_id: str, config: RunnerConfig, session: SessionHandle) -> Path | None:
    """Return the folder that driver and workers of a job share; the job makes and removes it.

    With shared storage it is the same for each driver that runs a job of this id.

    None: workers are on other machines, and no folder that is mounted on them was named.
    """
    name = name_of(job_id)
    storage = config.shared_storage
    # Where tasks run on this machine, a folder of its own serves them better than a URL.
    if storage is not None and not is_url(storage):
        return Path(storage).absolute() / name  # the program may go to another folder
    if session.is_local:
        return Path(session.local_folder() or tempfile.gettempdir()) / name
    return None


def make_folder(folder: Path) -> None:
    """Make the folder of a new job, which only this user may read and write.

    Raises:
        FileExistsError: somebody else has made it. Workers run what is in it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
