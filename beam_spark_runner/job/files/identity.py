"""The id of a job, and the folder that is derived from it."""

import tempfile
import uuid
from pathlib import Path

from beam_spark_runner.driving.session import Session
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.storage.urls import is_url


def new_job_id() -> str:
    """Return an id that no other job has: 12 hexadecimal digits."""
    return uuid.uuid4().hex[:12]


def name_of(job_id: str) -> str:
    """Return the name of a job's temporary folder, without its parent."""
    return f"beam-{job_id}"


def folder_of(job_id: str, config: RunnerConfig, session: Session) -> Path | None:
    """Return the folder that driver and workers of a job share; the job makes and removes it.

    Args:
        job_id: The id of the job.
        config: The options of the pipeline.
        session: The session in which the job runs.

    Returns:
        The folder. None: workers run on other machines, and no folder that is mounted there is
        named by --temp_location.
    """
    name = name_of(job_id)
    storage = config.shared_storage
    # If tasks run on this machine, a local folder takes the place of a URL.
    if storage is not None and not is_url(storage):
        return Path(storage).absolute() / name  # the program may change its working directory
    if session.is_local:
        return Path(session.local_folder() or tempfile.gettempdir()) / name
    return None


def make_folder(folder: Path) -> None:
    """Make the folder of a new job, which only this user may read and write.

    Raises:
        FileExistsError: The folder exists. It is not used, since workers run code from it, which
            another user might have put there.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700)
