"""Where one pipeline runs, as far as a job needs to know it: on Spark, or in this process."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from beam_spark_runner.engine.shared_file import SharedFile
from beam_spark_runner.observing.troubles import LostExecutor


class Session(Protocol):
    """A place for tasks.

    Threads: ``cancel`` may be called by any thread, everything else by one at a time.
    """

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, and read its files."""
        ...

    @property
    def is_connect(self) -> bool:
        """Whether it is a client of Spark Connect."""
        ...

    @property
    def row_limit_bytes(self) -> int:
        """The longest value of a row; longer ones travel in pieces."""
        ...

    @property
    def max_task_attempts(self) -> int:
        """How often a task runs before the job fails. 1: a failed task is final."""
        ...

    def driver_host(self) -> tuple[str, str] | None:
        """Return the address on which to listen for tasks, and the host to which they connect.

        None: unknown.
        """
        ...

    def local_folder(self) -> str | None:
        """Return a folder that is deleted when the session ends, however it does. None: none."""
        ...

    def ui_url(self) -> str | None:
        """Return the URL of the Spark UI. None: it has none, or it is not known."""
        ...

    def slots(self) -> int:
        """Return how many tasks run at a time."""
        ...

    def can_grow(self) -> bool:
        """Whether there will be more slots when tasks wait."""
        ...

    def lost_executors(self) -> tuple[LostExecutor, ...]:
        """Return the executors that were lost lately. Threads: another one than the job's."""
        ...

    def shuffle_partitions(self) -> int | None:
        """Return the user's number of partitions for an exchange. None: the user has set none."""
        ...

    def job_scope(self, tag: str, description: str) -> AbstractContextManager[None]:
        """Tag the jobs that the calling thread starts, so that ``cancel`` finds them.

        Args:
            tag: the id of the pipeline's job.
            description: is shown with the jobs in the Spark UI.
        """
        ...

    def share(self, path: Path) -> SharedFile:
        """Send a copy of a file to all tasks, for use until ``close``."""
        ...

    def cancel(self, tag: str) -> None:
        """Stop the jobs that run under ``tag`` now. A job that starts later is not affected."""
        ...

    def close(self) -> None:
        """End the use of the session by the pipeline."""
        ...
