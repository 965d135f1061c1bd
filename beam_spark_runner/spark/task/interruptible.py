"""Interrupts user code from another thread, if its results are no longer needed."""

import contextlib
import ctypes
import threading
from collections.abc import Iterator


class Interruptible:
    """Raises an error in the thread that is inside ``running``, wherever it is in Python code.

    A call that blocks outside of Python, as in ``time.sleep``, returns first. Threads: any.

    Args:
        error: class of what is raised; made without arguments.
    """

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error
        self._thread: int | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let the calling thread be interrupted inside; the error may come at its very end."""
        with self._lock:
            self._thread = threading.get_ident()
        try:
            yield
        finally:
            with self._lock:
                thread, self._thread = self._thread, None
                _raise_in(thread, None)  # what has not come by now is void

    @contextlib.contextmanager
    def sheltered(self) -> Iterator[None]:
        """Keep interrupts off inside, where the error might come between a lock and its release.

        They are lost: whoever needs to know looks afterwards.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            _raise_in(thread, None)
        try:
            yield
        finally:
            with self._lock:
                self._thread = thread

    def interrupt(self) -> None:
        """Raise the error in the thread that is inside, if there is one."""
        with self._lock:
            if self._thread is not None:
                _raise_in(self._thread, self._error)


def _raise_in(thread: int | None, error: type[BaseException] | None) -> None:
    if thread is not None:
        raised = None if error is None else ctypes.py_object(error)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
