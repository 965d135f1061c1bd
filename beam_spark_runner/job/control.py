"""What is wanted of a job that runs."""

import threading


class JobControl:
    """Whether a job is to end, or to be drained. Threads: any, also a handler of signals."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # its lock may be taken again by the same thread
        self._is_cancelled = self._drains = False
        self._seen = False  # what ``drains`` has answered last: only news ends a sleep

    @property
    def is_cancelled(self) -> bool:
        """Whether the job is to end at once."""
        return self._is_cancelled

    def drains(self) -> bool:
        """Whether the sources of a streaming pipeline are to end. Threads: that which sleeps."""
        self._seen = self._drains
        return self._seen

    def cancel(self) -> None:
        """Let the job end at once."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def drain(self) -> None:
        """Let the sources of the job end."""
        with self._changed:
            self._drains = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Sleep, but no longer than until the job is to end.

        Args:
            seconds: at most.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_cancelled, seconds)

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until the job is to end, or to be drained.

        Args:
            seconds: at most.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_cancelled or self._drains is not self._seen, seconds
            )
