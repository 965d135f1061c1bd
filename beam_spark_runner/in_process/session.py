"""This process as the place where a pipeline runs; see ``driving.session``."""

import contextlib
from pathlib import Path

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.engine.limits import ROW_LIMIT_BYTES
from beam_spark_runner.engine.shared_file import SharedFile
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.observing.troubles import LostExecutor

_SLOTS = 2
_LOOPBACK = "127.0.0.1"
_ABANDON_S = 0.0


class InProcessSession:
    """See ``Session``. Its tasks run one after another, in the thread of their job."""

    is_local = True
    is_connect = False
    row_limit_bytes = ROW_LIMIT_BYTES
    max_task_attempts = 1

    def __init__(self) -> None:
        self._tags: set[str] = set()

    def driver_host(self) -> tuple[str, str] | None:
        """See ``Session``."""
        return _LOOPBACK, _LOOPBACK

    def local_folder(self) -> str | None:
        """See ``Session``."""
        return None

    def ui_url(self) -> str | None:
        """See ``Session``."""
        return None

    def slots(self) -> int:
        """Return the number of partitions of an exchange.

        More than one, so that a pipeline that is wrong with several is found to be so.
        """
        return _SLOTS

    def can_grow(self) -> bool:
        """See ``Session``."""
        return False

    def lost_executors(self) -> tuple[LostExecutor, ...]:
        """See ``Session``."""
        return ()

    def shuffle_partitions(self) -> int | None:
        """See ``Session``."""
        return None

    def job_scope(self, tag: str, description: str) -> contextlib.AbstractContextManager[None]:
        """See ``Session``."""
        self._tags.add(tag)
        return contextlib.nullcontext()

    def share(self, path: Path) -> SharedFile:
        """See ``Session``."""
        raise InvariantError(f"{path} is shared, although tasks read the folder of their job")

    def cancel(self, tag: str) -> None:
        """See ``Session``."""
        worker.end_job(tag, _ABANDON_S)

    def close(self) -> None:
        """End the jobs of the session in this process: their DoFns are torn down."""
        for tag in self._tags:
            worker.end_job(tag)
