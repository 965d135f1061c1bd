"""Calls that end for their callers, at a time limit or when they are stopped, whatever they do."""

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.engine.task.interruptible import Interruptible
from beam_spark_runner.job.server.refusals import PrepareTimeoutError

_LOGGER = logging.getLogger(__name__)
_LEAVES_WITHIN_S = 2.0

T = TypeVar("T")


class _StoppedError(BaseException):
    """Is raised in the thread of a call that is stopped, wherever it is in Python code."""


class LimitedCall(Generic[T]):
    """A call about a client's pipeline, in its own thread.

    If the thread is not in Python code, as in a system call, it continues after the call has ended
    for its caller, until it returns to Python. It is a daemon, so that the server's end does not
    wait for it.

    Threads: any may call ``stop``; one calls ``result``, once.

    Args:
        call: What to call.
        limit_s: The longest time that it may take.
    """

    def __init__(self, call: Callable[[], T], limit_s: float) -> None:
        self._call = call
        self._limit_s = limit_s
        self._user = Interruptible(_StoppedError)
        self._lock = threading.Lock()
        self._stop_error: RunnerError | None = None  # it was stopped
        self._results: list[T] = []
        self._raised: BaseException | None = None
        self._has_thread_ended = threading.Event()
        self._is_over = threading.Event()  # for the caller

    def result(self) -> T:
        """Make the call, and return what it returns.

        Raises:
            PrepareTimeoutError: It has exceeded the time limit.
            RunnerError: What ``stop`` was given.
            BaseException: What the call raises.
        """
        threading.Thread(target=self._run, name="beam-prepare", daemon=True).start()
        if not self._is_over.wait(self._limit_s):
            self.stop(PrepareTimeoutError(self._limit_s))
            self._is_over.wait()
        if self._stop_error is not None:
            raise self._stop_error
        if self._raised is not None:
            raise self._raised
        (result,) = self._results
        return result

    def stop(self, why: RunnerError) -> None:
        """End the call, and have ``result`` raise an error; does nothing if the call has ended."""
        with self._lock:
            if self._is_over.is_set() or self._stop_error is not None:
                return
            self._stop_error = why
        self._user.interrupt()
        if not self._has_thread_ended.wait(_LEAVES_WITHIN_S):
            _LOGGER.error("a thread that prepares a pipeline continues, although: %s", why)
        self._is_over.set()

    def _run(self) -> None:
        try:
            with self._user.running():
                if self._stop_error is None:  # else it was stopped before it began
                    self._results.append(self._call())
        except BaseException as error:
            self._raised = error
        self._has_thread_ended.set()
        with self._lock:
            if self._stop_error is None:
                self._is_over.set()
