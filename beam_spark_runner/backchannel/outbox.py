"""Messages of a worker that wait to be sent to the driver: how many, in which order, in one frame.

Without threads: whoever calls has a lock.
"""

from collections import deque
from collections.abc import Sequence

from beam_spark_runner._generated.backchannel_pb2 import OfferedRows, TaskProgress, WorkerFrame

MAX_LINES = 2_000
"""The most log lines that wait to be sent; further ones are only counted."""
MAX_BYTES_OF_LINES = 8 << 20
"""The most bytes of log lines in one frame: the driver accepts frames of up to 64 MB."""


class Outbox:
    """Collects messages, and puts all that wait into one frame; of log lines, as many as fit.

    Attributes:
        messages: How many messages were added. The driver waits until as many have arrived.
    """

    def __init__(self) -> None:
        self.messages = 0
        self._messages_in_frames = 0
        self._under_way: WorkerFrame | None = None  # the last frame, until it is sent
        self._lines: deque[bytes] = deque()
        self._progress: dict[int, TaskProgress] = {}  # by attempt
        self._rest = WorkerFrame()  # all else

    @property
    def has_news(self) -> bool:
        """Whether there is something to take."""
        return self._messages_in_frames < self.messages

    @property
    def is_under_way(self) -> bool:
        """Whether a frame was taken and is not sent yet."""
        return self._under_way is not None

    @property
    def is_empty(self) -> bool:
        """Whether all messages are sent."""
        return not self.has_news and not self.is_under_way

    def add(self) -> None:
        """Add a message without content: it lets the driver answer."""
        self.messages += 1

    def add_line(self, line: bytes) -> None:
        """Add a log line. If too many wait, it is only counted."""
        self.messages += 1
        if len(self._lines) < MAX_LINES:
            self._lines.append(line)
        else:
            self._rest.left_out += 1

    def add_left_out(self, lines: int) -> None:
        """Add a number of log lines that were left out."""
        self.messages += 1
        self._rest.left_out += lines

    def add_progress(self, progress: TaskProgress) -> None:
        """Add the progress of a task; it replaces an earlier one that waits."""
        self.messages += 1
        self._progress[progress.attempt] = progress

    def add_offer(self, rows: OfferedRows) -> None:
        """Add an offer of rows."""
        self.messages += 1
        self._rest.offers.append(rows)

    def add_stacks(self, request: int, text: str) -> None:
        """Add the stacks of the running tasks."""
        self.messages += 1
        self._rest.stacks.add(request=request, text=text)

    def add_finalized(self, attempt: int) -> None:
        """Add that the callbacks of an attempt have run."""
        self.messages += 1
        self._rest.finalized.append(attempt)

    def add_torn_down(self) -> None:
        """Add that this process has torn down the job."""
        self.messages += 1
        self._rest.has_torn_down = True

    def next_frame(self) -> WorkerFrame:
        """Return the next frame, which is under way from now on."""
        frame, self._rest = self._rest, WorkerFrame()
        frame.log_entries.extend(self._take_lines())
        # Without the lines that remain: the driver waits for these.
        self._messages_in_frames = self.messages - len(self._lines)
        frame.messages_sent = self._messages_in_frames
        frame.progress.extend(self._progress.values())
        self._progress.clear()
        self._under_way = frame
        return frame

    def _take_lines(self) -> list[bytes]:
        lines: list[bytes] = []
        size = 0
        while self._lines and (not lines or size + len(self._lines[0]) <= MAX_BYTES_OF_LINES):
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        return lines

    def sent(self) -> None:
        """Note that the last frame is sent."""
        self._under_way = None

    def take_unsent(self) -> tuple[Sequence[bytes], int]:
        """Remove all; return the log lines among it, and how many more were left out."""
        frames = [self._rest] if self._under_way is None else [self._under_way, self._rest]
        lines = [line for frame in frames for line in frame.log_entries] + list(self._lines)
        left_out = sum(frame.left_out for frame in frames)
        self._messages_in_frames, self._under_way, self._rest = self.messages, None, WorkerFrame()
        self._lines.clear()
        self._progress.clear()
        return lines, left_out
