"""Decides when a lull of a task is reported, and when the task is ended."""

from collections.abc import Hashable
from dataclasses import dataclass

MAX_SILENT_US = 300_000_000
"""A lull of this length is reported, as by Beam's SDKs, and again each time the length doubles."""


@dataclass(frozen=True, slots=True)
class ReportLull:
    """Log that user code has made no progress for so long."""

    lasted_us: int


@dataclass(frozen=True, slots=True)
class EndTask:
    """End the task: its lull has reached the timeout."""

    lasted_us: int


class Lull:
    """Follows the progress of one task.

    Args:
        timeout_us: The length of a lull that ends the task; None: no limit. The first report is
            after half of it at most.

    Example:
        >>> lull = Lull(timeout_us=1_000_000)
        >>> [lull.on(7, now_us) for now_us in (0, 500_000, 900_000, 1_000_000)]
        [None, ReportLull(lasted_us=500000), None, EndTask(lasted_us=1000000)]
    """

    def __init__(self, timeout_us: int | None) -> None:
        self._timeout_us = timeout_us
        self._first_us = MAX_SILENT_US
        if timeout_us is not None:
            self._first_us = min(MAX_SILENT_US, timeout_us // 2)
        self._next_us = self._first_us
        self._seen: Hashable | None = None
        self._since_us = 0

    def on(self, progress: Hashable | None, now_us: int) -> ReportLull | EndTask | None:
        """Observe the task; return the action that is due.

        Args:
            progress: A value that changes with any progress; None: no user code is running.
            now_us: The time of a monotonic clock.
        """
        if progress is None or progress != self._seen:
            self._seen, self._since_us, self._next_us = progress, now_us, self._first_us
            return None
        lasted_us = now_us - self._since_us
        if self._timeout_us is not None and lasted_us >= self._timeout_us:
            return EndTask(lasted_us)
        if lasted_us < self._next_us:
            return None
        while self._next_us <= lasted_us:
            self._next_us *= 2
        return ReportLull(lasted_us)
