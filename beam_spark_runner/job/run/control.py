"""Requests to cancel, suspend or drain a running job."""

import threading

from beam_spark_runner.core.errors import RunnerError


class JobCancelledError(RunnerError):
    """The job was cancelled or suspended."""


class JobControl:
    """Whether a job is to be cancelled, suspended or drained.

    Threads: any, also signal handlers.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()  # its lock is reentrant, for signal handlers
        self._is_cancelled = self._is_suspended = self._drains = False
        self._error: RunnerError | None = None
        self._seen_drain = False  # the last answer of ``sees_drain``, for ``sleep``

    @property
    def is_cancelled(self) -> bool:
        """Whether ``cancel`` was called."""
        return self._is_cancelled

    @property
    def is_suspended(self) -> bool:
        """Whether ``suspend`` was called, and ``cancel`` was not."""
        return self._is_suspended and not self._is_cancelled

    def check(self) -> None:
        """Raise the error of ``end_with``, or a JobCancelledError if the job is to end now."""
        if self._error is not None:
            raise self._error
        if self._is_cancelled or self._is_suspended:
            raise JobCancelledError("cancelled")

    @property
    def _is_to_end(self) -> bool:
        return self._is_cancelled or self._is_suspended or self._error is not None

    @property
    def is_to_drain(self) -> bool:
        """Whether ``drain`` was called."""
        return self._drains

    def sees_drain(self) -> bool:
        """Whether ``drain`` was called; ``sleep`` then knows it. Threads: the one that sleeps."""
        self._seen_drain = self._drains
        return self._seen_drain

    def cancel(self) -> None:
        """Request that the job ends at once."""
        with self._changed:
            self._is_cancelled = True
            self._changed.notify_all()

    def suspend(self) -> None:
        """Request that the job ends at once, and is continued later."""
        with self._changed:
            self._is_suspended = True
            self._changed.notify_all()

    def end_with(self, error: RunnerError) -> None:
        """Request that the job ends at once, with an error."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def drain(self) -> None:
        """Request that the sources of the job end."""
        with self._changed:
            self._drains = True
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Sleep until the time is over, or the job is to end at once.

        Args:
            seconds: The longest time to sleep.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_to_end, seconds)

    def pause(self, seconds: float) -> None:
        """Sleep as ``wait`` does, and raise the error of ``check`` if the job is to end."""
        self.wait(seconds)
        self.check()

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is over, the job is to end at once, or a drain is newly requested.

        Args:
            seconds: The longest time to sleep.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_to_end or self._drains is not self._seen_drain, seconds
            )
