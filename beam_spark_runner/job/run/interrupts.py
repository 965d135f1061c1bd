"""Handles Ctrl-C in a program that starts a pipeline or waits for it."""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import TracebackType

from beam_spark_runner.job.watching.progress_line import Line, ProgressLine

_LOGGERS_OF_PY4J = ("", "py4j.java_gateway", "py4j.clientserver")


class FirstInterrupt:
    """What Ctrl-C does to one pipeline: the first one cancels it, the second ends the program.

    Args:
        line: Where the progress of the pipeline is shown. None: nowhere.
    """

    def __init__(self, line: Line | None) -> None:
        self._line = line
        self._has_come = False

    @contextlib.contextmanager
    def raises(self) -> Iterator[None]:
        """Have the first Ctrl-C raise KeyboardInterrupt, after it has been answered.

        The block must cancel the pipeline before it passes the exception on. Unless the program
        catches it, no traceback is shown: its user knows what has ended it.

        Without effect in other threads than the main one, and in programs that have their own
        handler for Ctrl-C.
        """
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            yield
            return
        signal.signal(signal.SIGINT, self._interrupt)
        loggers = [logging.getLogger(name) for name in _LOGGERS_OF_PY4J]
        for logger in loggers:
            logger.addFilter(_is_no_interrupt)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(_is_no_interrupt)
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _interrupt(self, number: int, _: object) -> None:
        if self._has_come:
            _leave_at_once()
        self._has_come = True
        if self._line is not None:
            self._line.show(lambda: ["cancelling… again to leave at once"])
        error = KeyboardInterrupt()
        # The line says how the pipeline ends, but only on stderr.
        _spare_traceback(error, names_error=not isinstance(self._line, ProgressLine))
        raise error


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Leave out what Py4J logs when Ctrl-C interrupts one of its calls, before it passes it on.

    It closes the connection meanwhile, which may fail.
    """
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is None


def _leave_at_once() -> None:
    """End the program as the signal does by default; the JVM ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def _spare_traceback(error: KeyboardInterrupt, *, names_error: bool) -> None:
    """Show no traceback if this very exception ends the program."""
    previous_hook = sys.excepthook

    def show(
        kind: type[BaseException], raised: BaseException, traceback: TracebackType | None
    ) -> None:
        if raised is not error:
            previous_hook(kind, raised, traceback)
            return
        # What is left of the program is its end, which another Ctrl-C need not interrupt in order.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if names_error and sys.stderr is not None:
            print(kind.__name__, file=sys.stderr)

    sys.excepthook = show
