"""Notices epochs that take far longer than they should."""

from beam_spark_runner.scheduling.epoch_status import EpochStatus

TIMES = 10
_LEAST_INTERVAL_US = 100_000
"""A Spark job takes about as long, whatever interval the user wishes for."""


class SlowEpochs:
    """Follows the epochs of one run.

    Args:
        interval_us: what an epoch should take.
    """

    def __init__(self, interval_us: int) -> None:
        self._interval_us = interval_us
        self._limit_us = TIMES * max(interval_us, _LEAST_INTERVAL_US)
        self._is_first = True

    def is_slow(self, status: EpochStatus) -> bool:
        """Whether an epoch is to be named: it took at least ten times its interval.

        The first one of a run is not: Spark's workers start in it, and DoFns are set up. With a
        backlog, an epoch gets a larger budget; it may take that in addition. The next one that is
        named takes at least twice as long.
        """
        is_first, self._is_first = self._is_first, False
        took_us = status.took_us - max(0, status.budget_us - self._interval_us)
        if is_first or took_us < self._limit_us:
            return False
        self._limit_us = 2 * took_us
        return True
