"""Sends each log line of a Python worker to the driver of the job whose code has logged it.

A process has one root logger and one ``warnings`` module, and serves many jobs. Code of a job runs
in its tasks, one at a time, and in threads that run its callbacks and tear down its DoFns, possibly
while a task of another job runs.
"""

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from typing_extensions import override

from beam_spark_runner.backchannel.log_lines import Levels, LogHandler, redirect_warnings

_OF_THREAD = threading.local()


@contextlib.contextmanager
def logging_to(handler: LogHandler) -> Iterator[None]:
    """Send the log lines of this thread to ``handler``, whichever task runs."""
    previous = getattr(_OF_THREAD, "handler", None)
    _OF_THREAD.handler = handler
    try:
        yield
    finally:
        _OF_THREAD.handler = previous


class ProcessLog(logging.Handler):
    """The root logger's handler, once a job with log lines to send has begun."""

    def __init__(self, elsewhere: LogHandler) -> None:
        """Create a handler without a job.

        Args:
            elsewhere: Handles the lines of jobs that have no connection to their driver.
        """
        super().__init__()
        self._elsewhere = elsewhere
        self._of_task: LogHandler | None = None
        self._levels = Levels()

    @staticmethod
    def begin_job() -> None:
        """Have Python's ``warnings`` show again what it has shown once for an earlier job."""
        warnings.onceregistry.clear()  # type: ignore[attr-defined]

    def begin_task(self, handler: LogHandler | None, options: Mapping[str, Any]) -> None:
        """Have a job's handler handle the lines of this process from now on.

        Args:
            handler: The handler; None: the job has no connection to its driver.
            options: The pipeline options by name, with the log levels.
        """
        if handler is self._of_task:
            return
        root = logging.getLogger()
        for other in root.handlers[:]:
            # Imports may have added a handler that would write every line to stderr, too.
            if other is self or type(other) is logging.StreamHandler:
                root.removeHandler(other)
        root.addHandler(self)
        redirect_warnings(lambda *warning: self._current().warn(*warning))
        self._of_task = handler
        self._levels.use(options)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        self._current().handle(record)

    def _current(self) -> LogHandler:
        of_thread: LogHandler | None = getattr(_OF_THREAD, "handler", None)
        return of_thread or self._of_task or self._elsewhere


class ProgramLog(logging.Handler):
    """Passes log lines of jobs that run in their program on to these jobs.

    The program's own handlers show them, too. Only lines of threads in ``logging_to`` are taken.

    Threads: any.
    """

    def __init__(self) -> None:
        super().__init__()
        self._jobs = 0
        self._of_jobs = threading.Lock()

    def begin_job(self) -> None:
        """Listen to the root logger, until as many jobs have ended as have begun."""
        with self._of_jobs:
            self._jobs += 1
            if self._jobs == 1:
                logging.getLogger().addHandler(self)

    def end_job(self) -> None:
        """See ``begin_job``."""
        with self._of_jobs:
            self._jobs -= 1
            if not self._jobs:
                logging.getLogger().removeHandler(self)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        of_thread: LogHandler | None = getattr(_OF_THREAD, "handler", None)
        if of_thread is not None:
            of_thread.handle(record)
        # A program that has configured nothing sees warnings on stderr, as without this handler.
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and self._is_alone():
            last.handle(record)

    def _is_alone(self) -> bool:
        return logging.getLogger().handlers == [self]
