"""What a worker and the driver say to each other, without the threads and the connection.

``Conversation`` knows what waits to be sent, which callbacks wait for the driver, and when the
connection ends. ``worker`` has the threads: it reports each event, and does what
``Conversation.next_action`` returns. All times are arguments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Concatenate, NamedTuple, ParamSpec

from beam_spark_runner._generated.backchannel_pb2 import OfferedRows, TaskProgress, WorkerFrame
from beam_spark_runner.backchannel.outbox import Outbox
from beam_spark_runner.core.callbacks import Callbacks
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.story import Story

_SHORTEST_SLEEP_S = 0.01

_Given = ParamSpec("_Given")

Look = Callable[[], TaskProgress]


class Link(Enum):
    """How far the connection is. It only goes forward; the last two are final."""

    UNOPENED = auto()  # nothing was to be sent so far
    OPEN = auto()  # nothing waits for an answer so far
    HEARD = auto()  # the driver's messages are received
    MUTE = auto()  # the driver sends none any more, but may receive some
    LOST = auto()
    CLOSED = auto()  # as this process wanted


class Course(Enum):
    """How far the job is, as this process knows."""

    RUNNING = auto()
    AWAITING_END = auto()  # the driver is asked to report the job's end
    TEARING_DOWN = auto()  # it has done so
    TORN_DOWN = auto()
    CLOSING_ONCE_TORN_DOWN = auto()
    CLOSING = auto()  # what waits to be sent is the last


_AFTER_TEARDOWN = {
    Course.TEARING_DOWN: Course.TORN_DOWN,
    Course.CLOSING_ONCE_TORN_DOWN: Course.CLOSING,
}


@dataclass(frozen=True, slots=True)
class AskTasks:
    """Ask the running tasks for their progress, without waiting for their answers."""

    tasks: Sequence[tuple[int, Look]]


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the connection, then report ``connected`` or ``lost``."""


@dataclass(frozen=True, slots=True)
class Hear:
    """Receive the driver's messages from now on, until there are no more; then ``hung_up``."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message, then report ``sent`` or ``lost``."""

    frame: WorkerFrame


@dataclass(frozen=True, slots=True)
class Sleep:
    """All is sent. Wait for the next event; with ``seconds``, not longer than that."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Leave:
    """Close the connection, then report ``left``."""


Action = AskTasks | Connect | Hear | Send | Sleep | Leave


class Verdict(NamedTuple):
    """The callbacks that an accepted attempt lets run, and those that it lets drop."""

    run: Sequence[Callbacks]
    drop: Sequence[Callbacks]


class Remains(NamedTuple):
    """What is left of a connection: lines and counts that were not sent, callbacks to drop."""

    lines: Sequence[bytes]
    left_out: int
    drop: Sequence[Callbacks]


class _Held(NamedTuple):
    """Callbacks that wait until the output of their attempt is accepted."""

    callbacks: Sequence[Callbacks]
    epoch: int | None


class Conversation:
    """The state of one process's connection to the driver of one job.

    The methods of tasks return False if there is no connection any more, so that nothing was done.
    Otherwise whoever calls ``next_action`` has to be woken.

    Threads: one at a time; whoever calls has a lock.

    Attributes:
        story: What happened last, for errors and log lines.
    """

    def __init__(self, now_s: float, look_every_s: float) -> None:
        """Begin, without a connection.

        Args:
            now_s: The time, by a clock that never goes back.
            look_every_s: The interval at which running tasks are asked for their progress.
        """
        self.story = Story(now_s)
        self._link = Link.UNOPENED
        self._course = Course.RUNNING
        self._outbox = Outbox()
        self._held: dict[int, _Held] = {}  # by attempt
        self._tasks: dict[int, Look] = {}  # running attempts
        self._began_s = self._looked_s = now_s
        self._look_every_s = look_every_s
        self._was_asked = False  # tasks were asked for their progress: the driver may ask more
        self._alarm_s: float | None = None  # when tasks are asked next; None: no task needs it

    @property
    def is_lost(self) -> bool:
        """Whether the connection is broken, or there never was a way to the driver."""
        return self._link is Link.LOST

    @property
    def is_over(self) -> bool:
        """Whether nothing will be sent any more."""
        return self._link in (Link.LOST, Link.CLOSED)

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return self.is_over or self._outbox.is_empty

    @property
    def is_ended(self) -> bool:
        """Whether the job has been ended in this process, or the driver cannot report it."""
        is_cut_off = self._link in (Link.LOST, Link.MUTE)
        return is_cut_off or (self._course is Course.CLOSING and self.is_idle)

    @property
    def messages_sent(self) -> int:
        """How many messages there were, if the driver can receive them all; 0 if not."""
        return 0 if self.is_lost else self._outbox.messages

    @property
    def holds(self) -> bool:
        """Whether callbacks wait for their output to be accepted."""
        return bool(self._held)

    # Events of tasks, in any thread.

    def log(self, now_s: float, line: bytes) -> bool:
        """Send a log line."""
        return self._takes(now_s, "line", Outbox.add_line, line)

    def leave_out(self, now_s: float, lines: int) -> bool:
        """Send a number of log lines that were left out."""
        return self._takes(now_s, "lines left out", Outbox.add_left_out, lines)

    def report_progress(self, now_s: float, progress: TaskProgress) -> bool:
        """Send the progress of a task."""
        return self._takes(now_s, "progress", Outbox.add_progress, progress)

    def offer(self, now_s: float, rows: OfferedRows) -> bool:
        """Send an offer of rows."""
        return self._takes(now_s, "offer", Outbox.add_offer, rows)

    def hold(
        self, now_s: float, attempt: int, callbacks: Sequence[Callbacks], epoch: int | None
    ) -> bool:
        """Keep callbacks until their attempt is accepted; not if that can never be heard."""
        if self._link is Link.MUTE or not self._takes(now_s, "callbacks held", Outbox.add):
            return False
        self._held[attempt] = _Held(callbacks, epoch)
        return True

    def await_end(self, now_s: float) -> bool:
        """Ask the driver, once, to report the end of the job."""
        if self._course is Course.RUNNING and self._takes(now_s, "end awaited", Outbox.add):
            self._course = Course.AWAITING_END
            return True
        return False

    def begin_task(self, now_s: float, attempt: int, look: Look) -> bool:
        """Note that a task runs. Short tasks one after another set one alarm, and wake once."""
        if self.is_over:
            return False
        self.story.note(now_s, "task began")
        self._tasks[attempt] = look
        if self._alarm_s is not None:
            return False
        self._alarm_s = self._looked_s + self._look_every_s
        return True

    def end_task(self, now_s: float, attempt: int) -> bool:
        """Note that a task has ended; return whether the job is old enough to report progress."""
        if self._tasks.pop(attempt, None) is not None:
            self.story.note(now_s, "task ended")
        return now_s - self._began_s >= self._look_every_s

    def close(self, now_s: float) -> None:
        """Have the connection end once all messages are sent, also those of a teardown."""
        self.story.note(now_s, "closing")
        if self._course is Course.TEARING_DOWN:
            self._course = Course.CLOSING_ONCE_TORN_DOWN
        elif self._course is not Course.CLOSING_ONCE_TORN_DOWN:
            self._course = Course.CLOSING
        if self._link is Link.UNOPENED and self.is_idle:
            self._link = Link.CLOSED

    # The thread that sends: it asks for the next action, and reports what became of it.

    def next_action(self, now_s: float) -> Action:
        """Return what to do next."""
        if self.is_over:
            return Leave()
        self._require(not self._outbox.is_under_way, "asked on, with a frame under way")
        if self._alarm_s is not None and now_s >= self._alarm_s:
            self._looked_s = now_s
            self._alarm_s = now_s + self._look_every_s if self._tasks else None
            if self._tasks:
                self._was_asked = True
                return AskTasks(tuple(self._tasks.items()))
        is_heard = self._held or self._was_asked or self._course is Course.AWAITING_END
        if self._link is Link.OPEN and is_heard:
            self._link = Link.HEARD
            return Hear()
        if self._outbox.has_news:
            return self._connect_or_send()
        if self._course is Course.CLOSING:
            self._link = Link.CLOSED
            return Leave()
        if self._alarm_s is None:
            return Sleep(None)
        return Sleep(max(self._alarm_s - now_s, _SHORTEST_SLEEP_S))

    def _connect_or_send(self) -> Connect | Send:
        if self._link is Link.UNOPENED:
            return Connect()
        frame = self._outbox.next_frame()
        frame.awaits_end = self._course is Course.AWAITING_END
        return Send(frame)

    def connected(self, now_s: float) -> None:
        """Note that the connection is open."""
        self._require(self._link is Link.UNOPENED, "connected, which it was already")
        self.story.note(now_s, "connected")
        self._link = Link.OPEN

    def sent(self, now_s: float) -> None:
        """Note that the frame is sent."""
        self._require(self._outbox.is_under_way, "sent, with nothing under way")
        self.story.note(now_s, "sent")
        self._outbox.sent()

    def lost(self, now_s: float, reason: str) -> None:
        """Note that the connection broke, or cannot be opened: nothing is sent any more."""
        if not self.is_over:
            self.story.note(now_s, f"lost: {reason}")
            self._link = Link.LOST
            self._tasks.clear()
            self._alarm_s = None

    def left(self, now_s: float) -> Remains:
        """Note that the connection is closed, and its thread ends; return what remains to do."""
        self.lost(now_s, "the thread has failed")  # unless it left as it should
        return Remains(*self._outbox.take_unsent(), self._take_held())

    # The thread that hears the driver.

    def accepted(self, now_s: float, attempt: int) -> Verdict:
        """Note that the driver has accepted an attempt: those of earlier epochs never will be."""
        self.story.note(now_s, "attempt accepted")
        accepted = self._held.pop(attempt, _Held([], None))
        return Verdict(accepted.callbacks, self._take_held(before_epoch=accepted.epoch or 0))

    def report_stacks(self, now_s: float, request: int, text: str) -> bool:
        """Send the stacks of the running tasks, for which the driver has asked."""
        return self._takes(now_s, "stacks", Outbox.add_stacks, request, text)

    def finalized(self, now_s: float, attempt: int) -> bool:
        """Note that the callbacks of an accepted attempt have run, and report it."""
        return self._takes(now_s, "callbacks have run", Outbox.add_finalized, attempt)

    def job_ended(self, now_s: float) -> Sequence[Callbacks]:
        """Note that the driver has reported the job's end; return callbacks to drop."""
        self.story.note(now_s, "job ended")
        is_closing = self._course in (Course.CLOSING, Course.CLOSING_ONCE_TORN_DOWN)
        self._course = Course.CLOSING_ONCE_TORN_DOWN if is_closing else Course.TEARING_DOWN
        return self._take_held()

    def torn_down(self, now_s: float) -> bool:
        """Note that this process has torn down the job, and report that to the driver."""
        self._require(self._course in _AFTER_TEARDOWN, "torn down before the job's end")
        self._course = _AFTER_TEARDOWN[self._course]
        return self._takes(now_s, "torn down", Outbox.add_torn_down)

    def hung_up(self, now_s: float) -> Sequence[Callbacks]:
        """Note that the driver sends nothing any more; return callbacks to drop.

        Its thread tears down, too: if that failed, nobody waits for it.
        """
        self.story.note(now_s, "the driver has hung up")
        self._course = _AFTER_TEARDOWN.get(self._course, self._course)
        if not self.is_over:
            self._link = Link.MUTE
        return self._take_held()

    def _takes(
        self,
        now_s: float,
        event: str,
        add: Callable[Concatenate[Outbox, _Given], None],
        *arguments: _Given.args,
        **more: _Given.kwargs,
    ) -> bool:
        if self.is_over:
            return False
        self.story.note(now_s, event)
        add(self._outbox, *arguments, **more)
        return True

    def _take_held(self, before_epoch: int | None = None) -> Sequence[Callbacks]:
        """Remove callbacks and return them: all, or those of epochs before one."""
        attempts = [
            attempt
            for attempt, held in self._held.items()
            if before_epoch is None or (held.epoch is not None and held.epoch < before_epoch)
        ]
        return [
            callbacks for attempt in attempts for callbacks in self._held.pop(attempt).callbacks
        ]

    def _require(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise InvariantError(f"backchannel: {otherwise} ({self.story})")
