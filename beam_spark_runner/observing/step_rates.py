"""Computes how many elements the steps of a streaming pipeline emit per second."""

from collections import deque
from collections.abc import Mapping

_OVER_S = 10.0


class StepRates:
    """Computes rates over the last ten seconds, from the counts of committed epochs.

    Threads: one calls ``note``, any may call ``per_second``.

    Example:
        >>> rates = StepRates()
        >>> rates.note({"Read": 100}, now_s=0.0)
        >>> rates.per_second(now_s=0.0)
        {}
        >>> rates.note({"Read": 700, "Sum": 30}, now_s=6.0)
        >>> rates.per_second(now_s=6.0)
        {'Read': 100.0, 'Sum': 5.0}
        >>> rates.per_second(now_s=15.0)  # of the ten seconds since the fifth one
        {'Read': 60.0, 'Sum': 3.0}
        >>> rates.per_second(now_s=16.0)
        {'Read': 0.0, 'Sum': 0.0}
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque()

    def note(self, counts: Mapping[str, int], now_s: float) -> None:
        """Record how many elements each step has emitted so far.

        Args:
            counts: The counts by step; a step that is missing has emitted none.
            now_s: The time of a monotonic clock.
        """
        self._samples.append((now_s, counts))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= _OVER_S:
            self._samples.popleft()

    def per_second(self, now_s: float) -> dict[str, float]:
        """Return the elements per second of each step; empty: not known yet.

        Args:
            now_s: The time of a monotonic clock.
        """
        samples = tuple(self._samples)  # one call, which no other thread interrupts
        if not samples:
            return {}
        first_s, first_counts = samples[0]
        for seen_s, counts in samples:
            if now_s - seen_s >= _OVER_S:
                first_s, first_counts = seen_s, counts
        over_s = min(now_s - first_s, _OVER_S)
        if over_s <= 0:
            return {}
        last = samples[-1][1]
        return {step: (count - first_counts.get(step, 0)) / over_s for step, count in last.items()}
