"""The name of a job, and the folder that follows from it."""

import tempfile
import uuid
from pathlib import Path

from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.spark.session.handle import SessionHandle


def new_job_id() -> str:
    """Return an id that no other job has: 12 hexadecimal digits."""
    return uuid.uuid4().hex[:12]


def folder_of(job_id: str, config: RunnerConfig, session: SessionHandle) -> Path | None:
    """Return the folder that driver and workers of a job share; the job makes and removes it.

    It is the same for each driver that runs a job of this id with the same storage.

    None: workers are on other machines, and no folder that they share was named.
    """
    name = f"beam-{job_id}"
    storage = config.shared_storage
    if storage is not None and "://" not in storage:
        return Path(storage) / name
    if session.is_local:
        return Path(session.local_folder() or tempfile.gettempdir()) / name
    return None
