"""Notices timers that set themselves again for ever, once all input of their key is there."""

from collections.abc import Callable

MOST_SET_AGAIN = 10_000
"""So many timers of one key may be set and fire while its time advances to the end of time."""
PATIENCE_US = 60_000_000
"""So long they may go on then: some windows have very many timers, which end."""


class TimerLoops:
    """Follows the keys of one step in one task. It says so once.

    An advance to the end of time fires whatever its timers set anew, up to the end of their window.
    The global window has its end so far off that a timer which always sets itself again does not
    come to it.

    Args:
        now_us: of a clock that never goes back.
        say: is called with the family of a timer that seems to go on for ever.
    """

    def __init__(self, now_us: Callable[[], int], say: Callable[[str], None]) -> None:
        self._now_us, self._say = now_us, say
        self._since_us = 0
        self._was_said = False

    def fired(self, family: str, set_again: int) -> None:
        """Note that a timer has fired.

        Args:
            family: its.
            set_again: see ``TimerQueue``, of its key.
        """
        if set_again < MOST_SET_AGAIN or self._was_said:
            return
        if set_again == MOST_SET_AGAIN:
            self._since_us = self._now_us()
        elif self._now_us() - self._since_us >= PATIENCE_US:
            self._was_said = True
            self._say(family)
