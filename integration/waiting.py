"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable
from pathlib import Path

from beam_spark_runner.recovery.manifest import epoch_in

_TIMEOUT_S = 240.0
_POLL_S = 0.01


def wait_until(
    holds: Callable[[], bool], what: str, timeout_s: float = _TIMEOUT_S, poll_s: float = _POLL_S
) -> None:
    """Wait for something.

    Raises:
        TimeoutError: it does not come.
    """
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(poll_s)


def newest_epoch(checkpoints: Path) -> int:
    """Return the last epoch that was committed to a folder; 0: none was."""
    names = (path.name for path in checkpoints.rglob("*.manifest"))
    return max((epoch_in(name, "main") or 0 for name in names), default=0)
