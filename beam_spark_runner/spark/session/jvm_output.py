"""Passes on what the JVM writes to stderr, for as long as this program runs."""

import contextlib
import os
import threading
import weakref

_BLOCK = 1 << 16
_SETTLES_WITHIN_S = 1.0


_OPEN: "weakref.WeakSet[JvmErrors]" = weakref.WeakSet()


class JvmErrors:
    """A pipe for the stderr of a JVM, whose bytes a thread copies to the stderr of this process.

    A JVM outlives a program that is killed by a second or two, in which it logs the stack traces of
    all that it can no longer reach: to the terminal, on which its user types the next command by
    then. With the program ends its side of the pipe, and what the JVM writes after that is lost.

    Attributes:
        writing: The file descriptor for the process that is started.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._thread = threading.Thread(target=self._copy, name="beam-jvm-errors", daemon=True)
        _OPEN.add(self)

    def pass_on(self) -> None:
        """Begin to copy, once the process is started. Threads: the one that has started it."""
        os.close(self.writing)
        self._thread.start()

    def settle(self) -> None:
        """Wait until what a JVM that has ended wrote is copied."""
        if self._thread.is_alive():
            self._thread.join(_SETTLES_WITHIN_S)

    def drop(self) -> None:
        """Close the pipe: no process was started."""
        os.close(self.writing)
        self.close()

    def _copy(self) -> None:
        reading = self._reading
        with contextlib.suppress(OSError):
            while block := os.read(reading, _BLOCK):
                with contextlib.suppress(OSError):  # stderr may be closed; the JVM must not wait
                    while block:
                        block = block[os.write(2, block) :]
        self.close()

    def close(self) -> None:
        """Copy nothing any more."""
        reading, self._reading = self._reading, -1
        if reading >= 0:
            with contextlib.suppress(OSError):
                os.close(reading)


def _close_in_child() -> None:
    """Close the pipes in a forked process, or they would outlive the program."""
    for each in list(_OPEN):
        each.close()


os.register_at_fork(after_in_child=_close_in_child)
