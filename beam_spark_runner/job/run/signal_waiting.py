"""Waits for events so that Python's signal handlers run meanwhile."""

import threading
import time

_LONGEST_S = 0.5


def wait_for(event: threading.Event, timeout_s: float | None = None) -> bool:
    """Wait for an event, while signal handlers run within half a second.

    Python runs signal handlers in the main thread only, but the kernel may deliver a signal to any
    thread. If that is another one, a main thread that waits without a time limit is not
    interrupted, and runs the handler only after the wait.

    Args:
        event: The event to wait for.
        timeout_s: The longest time to wait. None: no limit.

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
