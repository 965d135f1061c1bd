"""The last lines that a process has written, for error messages."""

import re
from collections import deque
from collections.abc import Iterable, Iterator

_LINES = 50
_LINES_OF_A_CRASH = 1_000  # one for each frame of each thread
LINE_BYTES = 2_000
"""Of longer lines, each piece counts as one."""
_TELLS_OPTIONS = re.compile(
    rb"Pipeline_options: \{|Discarding (unparseable args: \[|flag )"
    rb"|pipeline_options:\s*\{|Parsed options in boot entrypoint"
)
"""Lines with pipeline options, which may contain passwords. Beam's SDK and the boot programs of
its containers write them when they start."""


class LastLines:
    """Keeps the last lines of several streams. Threads: any."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_LINES_OF_A_CRASH)

    def stream(self) -> "StreamTail":
        """Return an object that takes the lines of one stream."""
        return StreamTail(self._lines)

    @property
    def text(self) -> str:
        """The last lines; of a crash report, only those of the thread that crashed."""
        lines = deque(_without_bystanders(list(self._lines)), maxlen=_LINES)
        return b"".join(lines).decode(errors="replace").rstrip()


class StreamTail:
    """Takes the lines of one stream, except those with pipeline options. Threads: one."""

    def __init__(self, lines: "deque[bytes]") -> None:
        self._lines = lines
        self._is_left_out = False
        self._is_within_a_line = False

    def add(self, piece: bytes) -> None:
        """Take a line, or a piece of one; the last piece ends with a newline."""
        if not self._is_within_a_line:
            self._is_left_out = _TELLS_OPTIONS.search(piece) is not None
        self._is_within_a_line = not piece.endswith(b"\n")
        if not self._is_left_out:
            self._lines.append(piece)


def _without_bystanders(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out the threads that Python's ``faulthandler`` shows, except the one that crashed."""
    is_left_out = False
    for line in lines:
        if line.startswith(b"Thread 0x"):
            is_left_out = True
        elif not line.startswith(b"  File ") and line.strip():
            is_left_out = False
        if not is_left_out:
            yield line
