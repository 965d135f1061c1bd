"""Limits how many log lines are sent, and counts those that are dropped."""

PER_SECOND = 100
AT_ONCE = 1_000


class LogValve:
    """Lets a number of lines through at once, and then so many per second.

    No clock: times come in, in seconds, and never go back.

    Threads: one.
    """

    def __init__(self, now_s: float, *, per_second: float = PER_SECOND, at_once: int = AT_ONCE):
        self._per_second = per_second
        self._at_once = at_once
        self._room = float(at_once)
        self._seen_s = now_s
        self._left_out = 0

    def lets_through(self, now_s: float) -> bool:
        """Whether a line that comes now may pass."""
        self._room = min(self._at_once, self._room + (now_s - self._seen_s) * self._per_second)
        self._seen_s = now_s
        if self._room < 1:
            self._left_out += 1
            return False
        self._room -= 1
        return True

    def take_left_out(self) -> int:
        """Return how many lines were left out since the last call; ask when one has passed."""
        count, self._left_out = self._left_out, 0
        return count
