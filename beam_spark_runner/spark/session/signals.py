"""Signals that reach the program while Spark starts."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def sigint_as_it_was() -> Iterator[None]:
    """Undo what a SparkContext sets: that Ctrl-C cancels all jobs, for as long as Python runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:  # None: not installed by Python
            signal.signal(signal.SIGINT, before)


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
    for each in handlers:
        signal.signal(each, lambda *of: received.append(of))
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number, frame in received:
            handlers[signal.Signals(number)](number, frame)
