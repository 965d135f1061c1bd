"""Handles SIGTERM in a program that waits for a pipeline."""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator

_LOGGER = logging.getLogger(__name__)
_ONLY_MAIN = "wait_until_finish does not run in the main thread, which alone receives signals"


class FirstSigterm:
    """What the first SIGTERM does, in whichever call of ``wait_until_finish`` it arrives."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act

    def take_action(self) -> Callable[[], None] | None:
        """Return what to do, for the first SIGTERM; None: it was not the first one."""
        act, self._act = self._act, None
        return act


@contextlib.contextmanager
def sigterm_raises(first: FirstSigterm | None = None) -> Iterator[None]:
    """Make SIGTERM raise SystemExit, so that the program cleans up before it ends.

    The signal's default action runs no Python code, and would leave temporary folders of PySpark's
    gateway and of Beam. Without effect in other threads than the main one, and in programs that
    have a handler for SIGTERM.

    Args:
        first: What the first SIGTERM does, in place of the exit. None: each SIGTERM exits.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        if first is not None:
            why = "this program has its own handler of SIGTERM" if is_main else _ONLY_MAIN
            _LOGGER.warning("--drain_on_sigterm has no effect: %s", why)
        yield
        return

    def leave(number: int, _: object) -> None:
        if first is not None and (act := first.take_action()) is not None:
            act()
            return
        raise SystemExit(128 + number)  # as a shell reports a signal

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
