"""One start of a stream that a job server continues: which starts have died before they did work.

It is claimed in the folder of the job, where a batch job has its fences, too. The epochs and their
fences are in the checkpoint.
"""

from typing_extensions import override

from beam_spark_runner.recovery.batch_start import BatchStart, CrashLoopError, Outlast, WorkFolders
from beam_spark_runner.recovery.commit import DeletingStorage

COMMITTED = "committed"
"""The file that says that an epoch was committed: the checkpoint must be there from then on."""
DRAINS = "drains"
"""The file that says that a client has drained the stream."""


class StreamCrashLoopError(CrashLoopError):
    """Starts of a stream have ended before they committed an epoch, again and again."""

    @override
    def __str__(self) -> str:
        return (
            f"{self.starts} starts of this stream have ended before they committed an epoch, and "
            "with them the job server or its Spark. It is not started again, since it may be what "
            "has ended them"
        )


class StreamStart(BatchStart):
    """A start of the driver of a stream; see ``BatchStart``, of which it has the fence.

    Args:
        storage: The folder of the job.
        work: Its subfolders, of which it has none.
        outlast: Is called with each step of the start.
        mark: Random: tells this start from others.

    Raises:
        StreamCrashLoopError: Earlier starts have ended without an epoch.
        FencedError: Another driver has started meanwhile.
    """

    def __init__(
        self, storage: DeletingStorage, work: WorkFolders, *, outlast: Outlast, mark: str
    ) -> None:
        self._has_worked = False
        try:
            super().__init__(storage, work, "", outlast=outlast, mark=mark)
        except CrashLoopError as error:
            raise StreamCrashLoopError(*error.args) from None

    def note_work(self) -> None:
        """Note that this start runs: it has committed an epoch, or none is due.

        It does not count any more as one that has died, and what earlier starts have noted is
        removed. After the first call, this does nothing.

        Raises:
            CheckpointStorageError: The folder cannot be read or written.
        """
        if not self._has_worked:
            self.stop()
            self.sweep(())
            self._has_worked = True

    def note_commit(self) -> None:
        """Note that an epoch is committed, so that a start without a checkpoint is an error.

        Raises:
            CheckpointStorageError: The folder cannot be written.
        """
        self._storage.create(COMMITTED, b"")


def has_committed(storage: DeletingStorage) -> bool:
    """Whether a start of a stream has committed an epoch."""
    return COMMITTED in storage.names()
