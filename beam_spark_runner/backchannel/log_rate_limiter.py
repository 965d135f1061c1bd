"""Limits how many log lines are sent, and counts those that are dropped."""

PER_SECOND = 100
AT_ONCE = 1_000


class LogRateLimiter:
    """A rate limit: lets ``at_once`` lines pass at once, then ``per_second`` lines per second.

    It reads no clock: times are arguments, in seconds, and must not decrease.

    Threads: one.
    """

    def __init__(self, now_s: float, *, per_second: float = PER_SECOND, at_once: int = AT_ONCE):
        self._per_second = per_second
        self._at_once = at_once
        self._room = float(at_once)
        self._seen_s = now_s
        self._left_out = 0

    def lets_through(self, now_s: float) -> bool:
        """Whether a line may pass now; it is counted."""
        self._room = min(self._at_once, self._room + (now_s - self._seen_s) * self._per_second)
        self._seen_s = now_s
        if self._room < 1:
            self._left_out += 1
            return False
        self._room -= 1
        return True

    def take_left_out(self) -> int:
        """Return how many lines were left out since the last call."""
        count, self._left_out = self._left_out, 0
        return count
