"""Decides how long a streaming pipeline waits for storage that is full or unavailable."""

_FIRST_S = 1.0
_LONGEST_S = 15.0
_PATIENCE_S = 120.0


def pause_s(failures: int, failing_for_s: float) -> float | None:
    """Return how long to wait before the next try; None: give up.

    Args:
        failures: The number of consecutive tries that have failed, at least one.
        failing_for_s: The seconds since the first of these.

    Example:
        >>> [pause_s(failures, 10.0) for failures in (1, 2, 3, 9)]
        [1.0, 2.0, 4.0, 15.0]
        >>> pause_s(9, 120.0)
    """
    if failing_for_s >= _PATIENCE_S:
        return None
    return min(_FIRST_S * (1 << min(failures - 1, 10)), _LONGEST_S)
