"""Chooses for how long the tasks of an epoch process sources."""

import statistics
from collections import deque

_LARGEST_SHARE = 10
"""With a backlog, the fixed cost of an epoch should be at most a tenth of its time."""
_LARGEST_US = 60_000_000
_GROWTH, _SHRINKING = 3, 2
"""The largest factors between the budgets of two epochs, since the times of epochs are noisy."""
_FIRST_GROWTH_US = 100_000  # the growth from a budget of zero
_EPOCHS = 6
"""The number of recent epochs from which the cost is estimated."""
_MIN_SPREAD = 0.1
"""The least relative standard deviation of budgets from which a slope is estimated."""
_FORGOTTEN = 0.85
"""The least factor between the slopes of two epochs. With one that noise has made too small,
budgets would be too large; one that is too large must not limit them forever."""


class SourceBudget:
    """The budget of the next epoch, computed from how long the previous epochs took.

    The time of an epoch beyond its budget has a fixed part (Spark jobs, tasks, the commit) and a
    part that grows with the budget, in which elements are processed downstream. A larger budget
    saves only the fixed part. Both are estimated by a line through the last epochs, by least
    squares: ``beyond = fixed + slope * budget``. If the true curve is not straight, the line
    approximates it near the current budgets, which is what matters.

    Args:
        interval_us: The time that an epoch should take, microseconds; the least budget.

    Attributes:
        us: The budget, microseconds.
        was_enough: Whether nothing was left over that the last budget did not allow.

    Example:
        >>> budget = SourceBudget(500_000)
        >>> for _ in range(6):  # 300 ms, and half a second for each second
        ...     tasks_us = budget.us * 3 // 2
        ...     budget.choose_next(300_000 + tasks_us, tasks_us, was_enough=False)
        >>> budget.us  # nine tenths of an epoch of 3 s are 2.7 s: 1.8 s, and half as much again
        1800000
    """

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._slope = 0.0
        self._is_first = True
        self._has_first = False  # whether the estimate uses the first epoch
        self._budgets_us: deque[int] = deque(maxlen=_EPOCHS)
        self._beyond_us: deque[int] = deque(maxlen=_EPOCHS)
        self.us = interval_us
        self.was_enough = True

    def choose_next(self, took_us: int, tasks_us: int, *, was_enough: bool) -> None:
        """Choose the budget of the next epoch.

        The first epoch of a run includes the start of Python workers, and what they import. Only
        its tasks count, as if the rest had taken as long as in the next epoch with a backlog, and
        only until there are two of these.

        Args:
            took_us: The total time of the last epoch.
            tasks_us: The time of its tasks: the longest of each level.
            was_enough: Whether its budget left nothing over.
        """
        is_first, self._is_first = self._is_first, False
        self.was_enough = was_enough
        min_us = max(self._interval_us, self.us / _SHRINKING)
        if was_enough:
            self.us = round(min_us)
            return
        if self._has_first and len(self._budgets_us) == 1:
            self._beyond_us[0] += took_us - tasks_us
        elif self._has_first:
            self._budgets_us.popleft()
            self._beyond_us.popleft()
            self._has_first = False
        self._has_first |= is_first
        self._budgets_us.append(self.us)
        self._beyond_us.append(max(0, (tasks_us if is_first else took_us) - self.us))
        wanted_us = (_LARGEST_SHARE - 1) * self._fixed_us() / (1 + self._slope)
        max_us = min(_LARGEST_US, max(_GROWTH * self.us, _FIRST_GROWTH_US))
        self.us = round(max(min_us, min(wanted_us, max_us)))

    def _fixed_us(self) -> float:
        mean_us = statistics.fmean(self._budgets_us)
        self._slope *= _FORGOTTEN
        if statistics.pstdev(self._budgets_us) > _MIN_SPREAD * mean_us:
            line = statistics.linear_regression(self._budgets_us, self._beyond_us)
            self._slope = max(self._slope, line.slope)
        return max(0.0, statistics.fmean(self._beyond_us) - self._slope * mean_us)
