"""Waiting in the main thread, in which Python runs the handlers of signals."""

import threading
import time

_LONGEST_S = 0.5


def wait_for(event: threading.Event, timeout_s: float | None = None) -> bool:
    """Wait for an event, while the handlers of signals run within half a second.

    The kernel may give a signal to any thread of the process. In most cases that is the main
    thread, which is interrupted; if not, a wait without a time limit would go on, and the handler
    would not run before its end.

    Args:
        event: which.
        timeout_s: None: wait for as long as it takes.

    Returns:
        Whether the event is set.
    """
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        left_s = _LONGEST_S if deadline_s is None else deadline_s - time.monotonic()
        if event.wait(max(0.0, min(left_s, _LONGEST_S))):
            return True
        if left_s <= 0:
            return False
