"""Notices that a driver's clock lags processing time, which never goes back."""

_LARGE_LAG_US = 5_000_000  # smaller steps of a clock are usual


class SlowClock:
    """Makes the warning about a slow clock, once.

    Example:
        >>> clock = SlowClock()
        >>> clock.warning(processing_us=8_000_000, now_us=7_000_000)
        >>> clock.warning(processing_us=68_000_000, now_us=8_000_000)[:72]
        'the clock of this machine lags the processing time of the pipeline by 60'
        >>> clock.warning(processing_us=68_000_000, now_us=9_000_000)
    """

    def __init__(self) -> None:
        self._was_slow = False

    def warning(self, *, processing_us: int, now_us: int) -> str | None:
        """Return the warning, if it is due and was not returned before.

        Args:
            processing_us: The processing time of the last epoch.
            now_us: The driver's clock.
        """
        lag_us = processing_us - now_us
        if self._was_slow or lag_us <= _LARGE_LAG_US:
            return None
        self._was_slow = True
        return (
            "the clock of this machine lags the processing time of the pipeline by "
            f"{lag_us // 1_000_000} s. Until the clock has caught up, processing time runs at a "
            "tenth of its speed: delays of sources and processing-time timers take longer"
        )
