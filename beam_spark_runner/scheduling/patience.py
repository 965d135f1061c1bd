"""Repeats work of a streaming pipeline while its storage is full or unavailable."""

from collections.abc import Callable
from typing import TypeVar

from beam_spark_runner.core.errors import CheckpointStorageError

_FIRST_S = 1.0
_LONGEST_S = 15.0
_PATIENCE_S = 120.0

_Result = TypeVar("_Result")


def retry_while_unavailable(
    work: Callable[[], _Result],
    now_s: Callable[[], float],
    warn: Callable[[str], None],
    pause: Callable[[float], None],
) -> _Result:
    """Do work that may be repeated, until it succeeds or has failed for two minutes.

    Args:
        work: The work. How long it takes does not count, only the time since its first failure.
        now_s: A monotonic clock.
        warn: Is called with a text about each try that has failed, except the last one.
        pause: Sleeps for so many seconds before the next try; its errors end the work.

    Returns:
        The result of the work.

    Raises:
        CheckpointStorageError: The error of the last try.
    """
    failures, first_s = 0, 0.0
    while True:
        try:
            return work()
        except CheckpointStorageError as error:
            first_s = first_s if failures else now_s()
            failures += 1
            if now_s() - first_s >= _PATIENCE_S:
                raise
            wait_s = min(_FIRST_S * (1 << min(failures - 1, 10)), _LONGEST_S)
            warn(f"{error}; trying again in {wait_s:.0f} s")
        pause(wait_s)
