"""Notices epochs that take far longer than they should."""

from beam_spark_runner.observing.epoch_status import EpochStatus

TIMES = 10
_MIN_INTERVAL_US = 100_000
"""About the time that a Spark job takes at least, however short the interval is."""


class SlowEpochs:
    """Follows the epochs of one run.

    Args:
        interval_us: The time that an epoch should take.
    """

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._limit_us = TIMES * max(interval_us, _MIN_INTERVAL_US)
        self._is_first = True

    def is_slow(self, status: EpochStatus) -> bool:
        """Whether to warn of an epoch: it took at least ten times its interval.

        There is no warning of the first epoch of a run, in which Python workers start and DoFns
        are set up. A budget beyond the interval, as with a backlog, does not count. After a
        warning, the next one is only of an epoch that takes at least twice as long.
        """
        is_first, self._is_first = self._is_first, False
        took_us = status.took_us - max(0, status.budget_us - self._interval_us)
        if is_first or took_us < self._limit_us:
            return False
        self._limit_us = 2 * took_us
        return True
