"""For how long the tasks of an epoch process sources."""

import statistics
from collections import deque

_LARGEST_SHARE = 10
"""With a backlog, the fixed cost of an epoch is at most a tenth of its time."""
_LARGEST_US = 60_000_000
_GROWTH, _SHRINKING = 3, 2
"""The largest from one epoch to the next: what single epochs take is noisy."""
_FIRST_GROWTH_US = 100_000  # from no budget at all
_EPOCHS = 6
"""So many of the last ones count."""
_LEAST_SPREAD = 0.1
"""Budgets that differ by less, relative to their mean, say nothing about what grows with them."""
_FORGOTTEN = 0.9
"""While they say nothing, a slope that was estimated too high must not hold the budget down."""


class SourceBudget:
    """The budget of the next epoch, from how long the epochs before it took.

    What an epoch takes beyond its budget has a fixed part (Spark's jobs, tasks, the commit) and
    a part that grows with the budget: elements are processed downstream. Only the fixed part is
    worth a larger budget. The two are told apart by a line through the last epochs, by least
    squares: ``beyond = fixed + slope * budget``. Where the true curve bends, since the same keys
    are met again, say, it is the line at the budgets that are in use that counts.

    Args:
        interval_us: what an epoch should take, microseconds; the least budget.

    Attributes:
        us: the budget, microseconds.
        was_enough: sources had no more than the last budget allowed.

    Example:
        >>> budget = SourceBudget(500_000)
        >>> for _ in range(6):  # 300 ms, and half a second for each second
        ...     budget.after(300_000 + budget.us * 3 // 2, was_enough=False)
        >>> budget.us  # nine tenths of an epoch of 3 s are 2.7 s: 1.8 s, and half as much again
        1800000
    """

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._slope = 0.0
        self._is_first = True
        self._budgets_us: deque[int] = deque(maxlen=_EPOCHS)
        self._beyond_us: deque[int] = deque(maxlen=_EPOCHS)
        self.us = interval_us
        self.was_enough = True

    def after(self, took_us: int, *, was_enough: bool) -> None:
        """Choose the budget of the next epoch.

        Args:
            took_us: what the last epoch took, all in all.
            was_enough: its sources had no more than its budget allowed.
        """
        is_first, self._is_first = self._is_first, False
        self.was_enough = was_enough
        if was_enough:
            self.us = self._interval_us
            return
        if is_first:  # Spark's workers have started in it
            return
        self._budgets_us.append(self.us)
        self._beyond_us.append(max(0, took_us - self.us))
        wanted_us = (_LARGEST_SHARE - 1) * self._fixed_us() / (1 + self._slope)
        most_us = min(_LARGEST_US, max(_GROWTH * self.us, _FIRST_GROWTH_US))
        least_us = max(self._interval_us, self.us / _SHRINKING)
        self.us = round(max(least_us, min(wanted_us, most_us)))

    def _fixed_us(self) -> float:
        mean_us = statistics.fmean(self._budgets_us)
        if statistics.pstdev(self._budgets_us) > _LEAST_SPREAD * mean_us:
            line = statistics.linear_regression(self._budgets_us, self._beyond_us)
            self._slope = max(0.0, line.slope)
        else:
            self._slope *= _FORGOTTEN
        return max(0.0, statistics.fmean(self._beyond_us) - self._slope * mean_us)
