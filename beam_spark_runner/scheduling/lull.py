"""When nothing happens in a task: when to say so, and when to give it up."""

from collections.abc import Hashable
from dataclasses import dataclass

MOST_SILENT_US = 300_000_000
"""A lull that lasts longer is reported, as Beam's SDKs do it; again when it lasts twice as long."""


@dataclass(frozen=True, slots=True)
class Report:
    """Say that nothing has happened for so long."""

    lasted_us: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """End the task: nothing has happened for too long."""

    lasted_us: int


class Lull:
    """Follows one task.

    Args:
        timeout_us: how long nothing may happen; None: for ever. Half of it at most passes before
            the first report.

    Example:
        >>> lull = Lull(timeout_us=1_000_000)
        >>> [lull.on(7, now_us) for now_us in (0, 500_000, 900_000, 1_000_000)]
        [None, Report(lasted_us=500000), None, GiveUp(lasted_us=1000000)]
    """

    def __init__(self, timeout_us: int | None) -> None:
        self._timeout_us = timeout_us
        self._first_us = MOST_SILENT_US
        if timeout_us is not None:
            self._first_us = min(MOST_SILENT_US, timeout_us // 2)
        self._next_us = self._first_us
        self._seen: Hashable | None = None
        self._since_us = 0

    def on(self, seen: Hashable | None, now_us: int) -> Report | GiveUp | None:
        """Take what is seen of the task now; return what is to be done.

        Args:
            seen: differs whenever something has happened. None: the task waits for no user code.
            now_us: of a clock that never goes back.
        """
        if seen is None or seen != self._seen:
            self._seen, self._since_us, self._next_us = seen, now_us, self._first_us
            return None
        lasted_us = now_us - self._since_us
        if self._timeout_us is not None and lasted_us >= self._timeout_us:
            return GiveUp(lasted_us)
        if lasted_us < self._next_us:
            return None
        while self._next_us <= lasted_us:
            self._next_us *= 2
        return Report(lasted_us)
