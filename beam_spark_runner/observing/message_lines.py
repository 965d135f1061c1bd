"""The messages of a job as a person reads them: who says what, and where."""

import re
from dataclasses import dataclass

ERROR, WARNING, INFO, DEBUG = "error", "warning", "info", "debug"
LEVELS = (ERROR, WARNING, INFO, DEBUG)
"""The levels, the most important first."""

# User code's log lines end with the step and the worker, before a traceback.
_WHERE = re.compile(
    r"\A(?P<text>.*?) \[(?:(?P<step>[^\]\n]*), )?(?P<worker>[^\],\n]+)\](?=\n|\Z)", re.S
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLine:
    """One message.

    Attributes:
        at: When it was written, in RFC 3339. "": not known.
        level: One of ``LEVELS``.
        text: The message.
        step, worker: Where user code has written it. "": not known, or the runner has.
        trace: A traceback. "": none.
    """

    at: str
    level: str
    text: str
    step: str = ""
    worker: str = ""
    trace: str = ""

    @property
    def is_of_runner(self) -> bool:
        """Whether the runner has written it, not user code."""
        return not self.worker


def message_line(at: str, level: str, text: str) -> MessageLine:
    r"""Take a message apart.

    Example:
        >>> line = message_line("", WARNING, "no such key [Parse/Map, executor 3]\nTraceback …")
        >>> line.text, line.step, line.worker, line.trace
        ('no such key', 'Parse/Map', 'executor 3', 'Traceback …')
        >>> message_line("", WARNING, "Read: this source has held the watermark").is_of_runner
        True
    """
    match = _WHERE.match(text) if level != ERROR else None
    if match is None:
        first, _, trace = text.lstrip("\n").partition("\n")
        return MessageLine(at=at, level=level, text=first, trace=trace.strip("\n"))
    return MessageLine(
        at=at,
        level=level,
        text=match["text"],
        step=match["step"] or "",
        worker=match["worker"],
        trace=text[match.end() :].strip("\n"),
    )
