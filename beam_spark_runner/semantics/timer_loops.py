"""Notices timers that set themselves again forever, once all input of their key has arrived."""

from collections.abc import Callable

MAX_SET_AGAIN = 10_000
"""The number of timers that may be set and fire while a key's time advances to its end."""
PATIENCE_US = 60_000_000
"""How long more of them may fire: some windows have very many timers, but not endlessly many."""
_LONGER_US, _LONGEST_PAUSE_US = 100, 10_000


class TimerLoops:
    """Follows the keys of one step in one task, and reports at most one endless timer.

    An advance to the end of time also fires timers that are set meanwhile: those of event time up
    to the end of their window, those of processing time until none is set. The end of the global
    window is so far off that a timer which always sets itself again does not reach it, and
    processing time has no end.

    A timer of processing time is often set to poll for the result of other threads. So that these
    get the processor, the pauses between such timers of a key grow from nothing to 10 ms.

    Args:
        now_us: Returns the time of a monotonic clock.
        say: Called with the family of a timer that seems to set itself again forever.
        pause: Sleeps for so many seconds.
    """

    def __init__(
        self,
        now_us: Callable[[], int],
        say: Callable[[str], None],
        pause: Callable[[float], object],
    ) -> None:
        self._now_us, self._say, self._pause = now_us, say, pause
        self._since_us = 0
        self._was_said = False

    def polls(self, set_again: int) -> None:
        """Pause after a processing-time timer.

        Args:
            set_again: ``TimerQueue.set_again`` of its key.
        """
        self._pause(min(_LONGER_US * set_again, _LONGEST_PAUSE_US) / 1e6)

    def fired(self, family: str, set_again: int) -> None:
        """Note that a timer has fired.

        Args:
            family: The family of the timer.
            set_again: ``TimerQueue.set_again`` of its key.
        """
        if set_again < MAX_SET_AGAIN or self._was_said:
            return
        if set_again == MAX_SET_AGAIN:
            self._since_us = self._now_us()
        elif self._now_us() - self._since_us >= PATIENCE_US:
            self._was_said = True
            self._say(family)
