"""Interrupts user code from another thread, if its results are no longer needed."""

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Iterator

_LOOK_AGAIN_S = 0.001
_WAITS_S = 1.0


class Interruptible:
    """Raises an error in the thread that is inside ``running``, wherever it is in Python code.

    A call that blocks outside of Python, as in ``time.sleep``, returns first. Threads: any.

    Args:
        error: the class of the error; it is instantiated without arguments.
    """

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error
        self._thread: int | None = None
        self._was_sent = False  # to that thread; it may have been raised, or not yet
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Let the calling thread be interrupted inside; the error may come at its very end."""
        try:
            with self._lock:
                self._thread = threading.get_ident()
            yield
        finally:
            with self._lock:
                # Before any call, since any call may raise the error that was sent.
                self._thread, was_sent, self._was_sent = None, self._was_sent, False
                if was_sent:
                    _withdraw()

    @contextlib.contextmanager
    def sheltered(self) -> Iterator[None]:
        """Block interrupts inside, where the error might come between a lock and its release.

        They are lost: the caller has to check afterwards whether it is still needed.
        """
        with self._lock:
            thread, self._thread = self._thread, None
            was_sent, self._was_sent = self._was_sent, False
            if was_sent:
                _withdraw()
        try:
            yield
        finally:
            with self._lock:
                self._thread = thread

    def interrupt(self) -> None:
        """Raise the error in the thread that is inside ``running``, if there is one; only once.

        A second error could be raised while the thread leaves because of the first.
        """
        until_s = time.monotonic() + _WAITS_S
        while not self._was_interrupted(is_last_try=time.monotonic() > until_s):
            time.sleep(_LOOK_AGAIN_S)

    def _was_interrupted(self, *, is_last_try: bool) -> bool:
        """Raise the error unless a thread is being started; return whether nothing is left to do.

        On the last try, it is raised anyway: a start that an error has broken off looks like one
        that lasts forever.
        """
        with self._lock, _checking_for_starts() as starts:
            if self._thread is not None and not self._was_sent:
                if starts and not is_last_try:
                    return False
                self._was_sent = True
                _raise_in(self._thread, self._error)
        return True


@contextlib.contextmanager
def _checking_for_starts() -> Iterator[bool]:
    """Yield whether a thread has been started that does not run yet. No other starts meanwhile.

    Until it runs, CPython 3.11 has it under the number of the thread that starts it, and would
    raise the error there: the new thread would end, and the one that starts it wait forever.
    """
    if sys.version_info >= (3, 12):
        yield False
        return
    with threading._active_limbo_lock:  # type: ignore[attr-defined]
        yield bool(threading._limbo)  # type: ignore[attr-defined]


class _WithdrawnError(BaseException):
    """Takes the place of an error that has not been raised yet."""


def _withdraw() -> None:
    """Drop the error that another thread has sent to the calling thread, if it has not come yet.

    Without an error in its place, CPython 3.11 would look for one from then on, in each function
    and loop of all threads, and would never begin a function under ``sys.settrace``.
    """
    try:
        _raise_in(threading.get_ident(), _WithdrawnError)
        while True:
            pass
    except _WithdrawnError:
        return


def _raise_in(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))
