"""The progress of a pipeline in a notebook: the line, and the plan's picture, whose boxes fill."""

import contextlib
import html
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from typing_extensions import override

from beam_spark_runner.job.watching.progress_line import Parts, TimedLine
from beam_spark_runner.observing.line_parts import SEPARATOR, time_text

_EVERY_S = 1.0


class Display(Protocol):
    """An output of a cell that can be replaced."""

    def update(self, shown: Any) -> None:
        """Replace what is shown."""
        ...


def display_in_cell() -> "Callable[[Any], Display] | None":
    """Return what shows an object in the present cell. None: no notebook runs the program."""
    ipython: Any = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:  # none, or a terminal
        return None
    return lambda shown: ipython.display.display(shown, display_id=True)


class NotebookLine(TimedLine):
    """Shows the line and the picture below the cell that runs the pipeline. See ``Line``.

    Args:
        show: Shows an object, once.
        began_s, clock: See ``TimedLine``.
    """

    def __init__(
        self,
        show: Callable[[Any], Display],
        began_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(_EVERY_S, began_s, clock)
        self._show = show
        self._picture: Callable[[], str] | None = None
        self._said: list[str] = []
        self._display: Display | None = None

    @override
    def show(self, parts: Callable[[], Parts], picture: Callable[[], str] | None = None) -> None:
        self._picture = picture or self._picture
        super().show(parts)

    @override
    def say(self, *parts: str) -> None:
        self._said.append(SEPARATOR.join(parts))
        self._draw()

    @override
    def close(self) -> None:
        super().close()
        self._draw()

    @override
    def _draw(self) -> None:
        with self._lock, contextlib.suppress(Exception):  # the kernel or Spark may be stopping
            lines = [*self._said]
            if not self._closed.is_set():
                lines.append(SEPARATOR.join([time_text(self.took_s()), *self._parts()]))
            output = _Html("".join(f"<div>{html.escape(line)}</div>" for line in lines))
            if self._picture is not None:
                output.text += self._picture()
            if self._display is None:
                self._display = self._show(output)
            else:
                self._display.update(output)


class _Html:
    """HTML for a notebook."""

    def __init__(self, text: str) -> None:
        self.text = text

    @override
    def __repr__(self) -> str:
        return "the progress of a pipeline, as HTML"

    def _repr_html_(self) -> str:
        return self.text
