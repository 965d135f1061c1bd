"""Signals that reach the program while Spark starts."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Have the program's handlers of SIGINT and SIGTERM called at the end of the block.

    For short blocks that an exception of a handler must not leave halfway. Signals that the program
    leaves to their default action are not deferred.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }
    for number in handlers:
        signal.signal(number, lambda *of: received.append(of))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for received_number, frame in received:
            handlers[signal.Signals(received_number)](received_number, frame)
