"""Chooses for how long the stages of an epoch fire what is due: panes, timers, expired state."""

_LARGEST_US = 60_000_000
_FACTOR = 2
"""Between the budgets of two epochs."""


class DueBudget:
    """The time that each stage has in the next epoch for what is due.

    It doubles as long as something is left, for whatever reason an epoch takes long: only then does
    the share of what is due in an epoch become as large as it must be. A budget for sources cannot
    serve for this. It is limited so that sources give way to the work downstream, which is often
    what is due.

    Args:
        interval_us: The time that an epoch should take, microseconds; the least budget.

    Attributes:
        us: The budget, microseconds.
        was_enough: Whether nothing was left over that the last budget did not allow.

    Example:
        >>> budget = DueBudget(50_000)
        >>> for was_enough in (False, False, True):
        ...     budget.choose_next(was_enough=was_enough)
        ...     print(budget.us)
        100000
        200000
        100000
    """

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self.us = interval_us
        self.was_enough = True

    def choose_next(self, *, was_enough: bool) -> None:
        """Choose the budget of the next epoch.

        Args:
            was_enough: Whether the last epoch fired all that was due.
        """
        self.was_enough = was_enough
        if was_enough:
            self.us = max(self._interval_us, self.us // _FACTOR)
        else:
            self.us = max(self._interval_us, min(_FACTOR * max(self.us, 1), _LARGEST_US))
