"""The progress line of a pipeline on a terminal, and the lines that remain there.

It is drawn by its own thread, whose errors never disturb the pipeline.
"""

import contextlib
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from typing_extensions import override

from beam_spark_runner.observing.line_parts import SEPARATOR, fit, in_ascii, time_text

_LOGGER = logging.getLogger("beam_spark_runner.progress")

_EVERY_S = 0.5
_EVERY_S_IN_A_FILE = 10.0
_EVERY_S_IN_A_LOG = 60.0
_JOIN_S = 2.0
_START_AND_CLEAR = "\r\x1b[K"
_WIDTH = 80  # of a terminal that does not say it

Parts = Sequence[str]


class Line(Protocol):
    """Where the progress of a pipeline is shown."""

    def show(self, parts: Callable[[], Parts], picture: Callable[[], str] | None = None) -> None:
        """Show this from now on.

        Args:
            parts: Returns the parts of the line without the time, the most important first. It is
                called by another thread.
            picture: Returns HTML to show below the line, for notebooks. None: as before.
        """
        ...

    def say(self, *parts: str) -> None:
        """Write a line that remains."""
        ...

    def took_s(self) -> float:
        """Return the time that the line shows, in seconds."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        ...

    def close(self) -> None:
        """Remove the line; ``say`` still writes lines."""
        ...


class TimedLine(ABC):
    """A ``Line`` that its own thread brings up to date.

    Threads: any. No method raises, except ``show`` if ``parts`` does not return.

    Args:
        every_s: The time between two looks at the parts.
        began_s: The time from which the line counts, by ``clock``.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, every_s: float, began_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s, self._began_s, self._clock = every_s, began_s, clock
        self._parts: Callable[[], Parts] = lambda: ["starting"]
        self._closed = threading.Event()
        self._lock = threading.RLock()  # nothing is drawn once ``close`` has cleared the line
        self._thread = threading.Thread(target=self._run, name="beam-progress", daemon=True)

    def show(self, parts: Callable[[], Parts], picture: Callable[[], str] | None = None) -> None:
        """See ``Line``."""
        self._parts = parts
        self._draw_first()
        if not (self._thread.is_alive() or self._closed.is_set()):
            with contextlib.suppress(RuntimeError):  # two calls at once, or no thread can be had
                self._thread.start()

    @abstractmethod
    def say(self, *parts: str) -> None:
        """See ``Line``."""

    def took_s(self) -> float:
        """See ``Line``."""
        return self._clock() - self._began_s

    @property
    def is_closed(self) -> bool:
        """See ``Line``."""
        return self._closed.is_set()

    def close(self) -> None:
        """See ``Line``."""
        self._closed.set()

    def _draw_first(self) -> None:
        """Draw what ``show`` was given, at once."""
        self._draw()

    @abstractmethod
    def _draw(self) -> None:
        """Bring the line up to date."""

    def _run(self) -> None:
        while not self._closed.wait(self._every_s):
            self._draw()


class ProgressLine(TimedLine):
    """Draws the line on a terminal until it is closed.

    If ``out`` is no terminal, it writes a line now and then, if something has changed.

    Args:
        out: Usually stderr.
        began_s, clock: See ``TimedLine``.
    """

    def __init__(
        self, out: TextIO, began_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._is_terminal = False
        with contextlib.suppress(Exception):
            self._is_terminal = out.isatty()
        self._last: Parts = ()
        self._is_drawn = False
        super().__init__(_EVERY_S if self._is_terminal else _EVERY_S_IN_A_FILE, began_s, clock)

    @override
    def say(self, *parts: str) -> None:
        """See ``Line``."""
        with self._lock:
            self._clear()
            self._write(SEPARATOR.join(parts) + "\n")
        if not self._closed.is_set() and self._thread.is_alive():
            self._draw()

    @override
    def close(self) -> None:
        """See ``Line``."""
        super().close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)  # it may be in a call to a JVM that is stuck
        with self._lock:
            self._clear()

    @override
    def _draw(self) -> None:
        try:
            parts = self._parts()
        except Exception:  # Spark may be stopping, or gone
            parts = self._last
        with self._lock:
            if self._closed.is_set() or not parts:
                return
            took = time_text(self.took_s())
            if self._is_terminal:
                # The cursor goes back to the start: what anybody else prints replaces the line.
                text = fit([took, *parts], self._width())
                self._write(f"{_START_AND_CLEAR}{text}\r")
                self._is_drawn = True
            elif parts != self._last:
                self._write(SEPARATOR.join([took, *parts]) + "\n")
            self._last = parts

    def _clear(self) -> None:
        if self._is_drawn:
            self._write(_START_AND_CLEAR)
        self._is_drawn = False

    def _width(self) -> int:
        """Return the width to use: the last column stays free, or terminals would wrap."""
        width = 0
        with contextlib.suppress(Exception):
            width = int(os.environ.get("COLUMNS", 0))
            width = width or os.get_terminal_size(self._out.fileno()).columns
        return (width or _WIDTH) - 1

    def _write(self, text: str) -> None:
        with contextlib.suppress(Exception):  # closed, or the terminal is gone
            try:
                text.encode(self._out.encoding or "utf-8")
            except UnicodeError:
                text = in_ascii(text)
            self._out.write(text)
            self._out.flush()


class LoggedLine(TimedLine):
    """Logs the line once a minute, if something has changed, and the lines that remain.

    For programs whose stderr is no terminal: what they print is left as it is, and what they log
    says how far the pipeline is.

    Args:
        began_s, clock: See ``TimedLine``.
    """

    def __init__(self, began_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(_EVERY_S_IN_A_LOG, began_s, clock)
        self._last: Parts = ()

    @override
    def say(self, *parts: str) -> None:
        """See ``Line``."""
        _LOGGER.info("%s", SEPARATOR.join(parts))

    @override
    def _draw_first(self) -> None:
        """Log nothing before a minute is over."""

    @override
    def _draw(self) -> None:
        with contextlib.suppress(Exception):  # Spark may be stopping, or gone
            parts = self._parts()
            if parts != self._last and not self._closed.is_set():
                self._last = parts
                self.say(time_text(self.took_s()), *parts)
