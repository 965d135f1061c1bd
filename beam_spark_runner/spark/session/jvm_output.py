"""Passes on what the JVM writes to stderr, for as long as this program runs."""

import contextlib
import os
import threading
import weakref

_BLOCK = 1 << 16
_SETTLES_WITHIN_S = 1.0
_USUAL = b"WARNING: Using incubator modules: jdk.incubator.vector\n"
"""Java's line about a module that PySpark's own start script asks for: nobody can act on it."""


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

    def wait_for_end(self) -> None:
        """Wait until what a JVM that has ended wrote is copied."""
        if self._thread.is_alive():
            self._thread.join(_SETTLES_WITHIN_S)

    def close_unused(self) -> None:
        """Close the pipe: no process was started."""
        os.close(self.writing)
        self.close()

    def _copy(self) -> None:
        reading = self._reading
        usual = UsualLine()
        with contextlib.suppress(OSError):
            while block := os.read(reading, _BLOCK):
                _write(usual.cut_from(block))
        _write(usual.withheld)
        self.close()

    def close(self) -> None:
        """Copy nothing any more."""
        reading, self._reading = self._reading, -1
        if reading >= 0:
            with contextlib.suppress(OSError):
                os.close(reading)


class UsualLine:
    """Cuts one known line out of a stream of bytes, which otherwise passes at once.

    Attributes:
        withheld: bytes that may be the beginning of the line.
    """

    def __init__(self) -> None:
        self.withheld = b""
        self._is_line_start = True

    def cut_from(self, block: bytes) -> bytes:
        """Return the next bytes that may pass, after those that were withheld."""
        passed = b""
        rest = self.withheld + block
        self.withheld = b""
        while rest:
            if self._is_line_start and rest.startswith(_USUAL):
                rest = rest[len(_USUAL) :]
                continue
            if self._is_line_start and _USUAL.startswith(rest):
                self.withheld = rest
                break
            line, end, rest = rest.partition(b"\n")
            passed += line + end
            self._is_line_start = bool(end)
        return passed


def _write(block: bytes) -> None:
    with contextlib.suppress(OSError):  # stderr may be closed; the JVM must not wait
        while block:
            block = block[os.write(2, block) :]


def _close_in_child() -> None:
    """Close the pipes in a forked process, or they would outlive the program."""
    for pipe in list(_OPEN):
        pipe.close()


os.register_at_fork(after_in_child=_close_in_child)
