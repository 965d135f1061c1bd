"""The worker's end of the backchannel: sends log lines, progress and metrics while tasks run.

Sending never waits and never fails: messages go to a queue, from which a thread of this
process sends them. The connection is opened with the first message; a short
pipeline that logs nothing opens none. Without a connection, log lines go to stderr, and other
messages are dropped.
"""

import contextlib
import itertools
import logging
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated.backchannel_pb2 import OfferedRows, TaskProgress, WorkerFrame
from beam_spark_runner.backchannel import transport
from beam_spark_runner.backchannel.log_lines import STDERR, LogHandler, shorten
from beam_spark_runner.backchannel.process_log import logging_to
from beam_spark_runner.backchannel.transport import DriverLink, Route
from beam_spark_runner.core.callbacks import Callbacks

_LOGGER = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""The interval at which running tasks report progress. A quicker job reports none."""
MOST_LINES = 2_000
"""The most log lines that wait to be sent; further ones are only counted."""
MOST_BYTES_OF_LINES = 8 << 20
"""The most bytes of log lines in one message: the driver accepts messages of up to 64 MB."""

_LAST_WORDS_S = 1.0
IS_KEPT = bool(os.environ.get("SPARK_REUSE_WORKER"))  # whether Spark reuses this process

Look = Callable[[], TaskProgress]


class _Held(NamedTuple):
    """Callbacks that wait until the output of their attempt is accepted."""

    callbacks: Sequence[Callbacks]
    epoch: int | None


class Backchannel:
    """One process's connection to the driver of one job.

    Threads: any. It has a thread of its own as soon as there is a message or task, and another
    one if it waits for messages from the driver.
    """

    def __init__(
        self,
        route: Route,
        connect: Callable[[Route, str], DriverLink | None] = transport.connect,
        on_end: Callable[[], object] = lambda: None,
        running_transform: Callable[[], str] = str,
        within: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """Create the object without opening the connection.

        Args:
            route: How to reach the driver.
            connect: Opens the connection, or returns None if it cannot.
            on_end: Called when the driver reports that the job has ended.
            running_transform: Returns the id of the transform that the calling thread runs, for
                log lines.
            within: Returns a context for all that the connection's own threads do for the job.
        """
        self.route = route
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._connect = connect
        self._on_end = on_end
        self._within = within
        self._lines: deque[bytes] = deque()
        self._pending = WorkerFrame()  # all else that is to be sent
        self._progress: dict[int, TaskProgress] = {}  # by attempt
        self._held: dict[int, _Held] = {}  # by attempt
        self._calls = False  # a message is due even if empty, so that the driver can answer
        self._awaits_end = False
        self._hears = True  # until the driver sends no more messages
        self._tasks: dict[int, Look] = {}  # running attempts
        self._sent = 0
        self._began_s = time.monotonic()
        self._looks_at_s = self._began_s + LOOK_EVERY_S
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None
        self._hearing: threading.Thread | None = None
        self._looking: threading.Thread | None = None
        self._is_closed = False
        self._is_ending = False  # the job is being torn down in this process
        self._is_idle = True  # no message waits to be sent
        self._looks = False  # the thread wakes up by itself, since tasks ran when it last looked
        self._is_lost = route.address is None and route.folder is None
        self._link: DriverLink | None = None
        # Takes the log records of the job's code in this process.
        self.handler = LogHandler(self, running_transform)

    def messages_sent(self) -> tuple[str, int]:
        """Return this process's id and how many messages it has sent; an empty id if none."""
        with self._wake:
            if self._is_lost or not self._sent:
                return "", 0
            return self.worker, self._sent

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        """Send a log line."""
        shorten(entry)
        with self._wake:
            if not self._is_lost:
                self._sent += 1
                if len(self._lines) < MOST_LINES:
                    self._lines.append(entry.SerializeToString())
                else:
                    self._pending.left_out += 1
                self._wake_up()
                return
        STDERR.log(entry)

    def leave_out(self, lines: int) -> None:
        """Report a number of log lines that were left out."""
        with self._wake:
            if not self._is_lost:
                self._sent += 1
                self._pending.left_out += lines
                self._wake_up()
                return
        STDERR.leave_out(lines)

    @contextlib.contextmanager
    def watching(self, attempt: int, look: Look, *, at_end: bool = True) -> Iterator[None]:
        """Send the progress of a task attempt at intervals, for as long as the context lasts.

        Args:
            attempt: The id of the task attempt.
            look: Returns the progress; called from another thread. Its errors are ignored.
            at_end: Whether to send the progress at the end, too. This is not needed if the Spark
                job ends soon, since the task's report has the same.
        """
        with self._wake:
            self._tasks[attempt] = look
            if not self._looks:  # else short tasks would wake the thread one after another
                self._looks = True
                self._wake_up()
        try:
            yield
        finally:
            with self._wake:
                self._tasks.pop(attempt, None)
        # A quicker task has sent no progress so far.
        if at_end and time.monotonic() - self._began_s >= LOOK_EVERY_S:
            self._send_progress(attempt, look)

    def _send_progress(self, attempt: int, look: Look) -> None:
        progress = None
        # The task may go on meanwhile: a dict grows while it is read, a bundle ends.
        with contextlib.suppress(Exception):
            progress = look()
        if progress is None:
            return
        progress.attempt = attempt
        with self._wake:
            if not self._is_lost:
                self._progress[attempt] = progress
                self._sent += 1
                self._wake_up()

    def offer(self, rows: OfferedRows) -> None:
        """Offer rows to the driver that a task will not read."""
        with self._wake:
            if not self._is_lost:
                self._pending.offers.append(rows)
                self._sent += 1
                self._wake_up()

    def hold(self, attempt: int, callbacks: Sequence[Callbacks], epoch: int | None = None) -> bool:
        """Run the callbacks of an attempt's bundles once its output is accepted.

        Args:
            attempt: The id of the task attempt.
            callbacks: The callbacks of its bundles.
            epoch: The epoch in which it ran. Once an attempt of a later epoch is accepted, this
                one never will be.

        Returns:
            False if there is no connection: the callbacks are dropped.
        """
        with self._wake:
            if not self._is_lost:
                self._held[attempt] = _Held(callbacks, epoch)
                self._calls = True
                self._sent += 1
                self._wake_up()
                return True
        for each in callbacks:
            each.drop()
        _LOGGER.warning("callbacks of bundle finalization do not run: the driver is not connected")
        return False

    @property
    def holds(self) -> bool:
        """Whether callbacks wait for their output to be accepted."""
        return bool(self._held)

    def await_end(self) -> None:
        """Ask the driver to report the end of the job, and call ``on_end`` then."""
        with self._wake:
            if not self._is_lost and not self._awaits_end:
                self._awaits_end = self._calls = True
                self._sent += 1
                self._wake_up()

    def wait_for_end(self) -> None:
        """Wait until the job has been ended in this process, or the driver cannot report it."""
        self.await_end()
        with self._wake:
            self._wake.wait_for(
                lambda: (
                    self._is_lost
                    or not self._hears
                    or (self._is_closed and self._is_idle and not self._is_ending)
                )
            )

    def end_task(self) -> tuple[str, int]:
        """Flush the log lines of the task, and return ``messages_sent``."""
        self.handler.flush()
        if not IS_KEPT:
            self.wait_until_sent(_LAST_WORDS_S)
        return self.messages_sent()

    def wait_until_sent(self, timeout_s: float) -> bool:
        """Wait until all messages so far are sent; return False after the timeout."""
        with self._wake:
            return self._wake.wait_for(lambda: self._is_lost or self._is_idle, timeout_s)

    def close(self) -> None:
        """Close the connection after queued messages are sent; callbacks that wait are dropped."""
        with self._wake:
            self._is_closed = True
            self._wake.notify_all()

    def _wake_up(self) -> None:
        if self._thread is None and not self._is_lost:
            self._thread = threading.Thread(target=self._run, name="beam-backchannel", daemon=True)
            self._thread.start()
        self._is_idle = False
        self._wake.notify_all()

    def _run(self) -> None:
        with self._within():
            self._send_until_closed()

    def _send_until_closed(self) -> None:
        try:
            while True:
                self._look()
                frame = self._take()
                if frame is not None:
                    self._send(frame)
                with self._wake:
                    if self._has_something():
                        continue
                    self._is_idle = True
                    self._wake.notify_all()
                    if self._is_lost or (self._is_closed and not self._is_ending):
                        return
                    wait_s = max(self._looks_at_s - time.monotonic(), 0.01)
                    self._wake.wait(wait_s if self._looks else None)
        finally:
            if self._link is not None:
                self._link.close()
            self._drop_held()

    def _has_something(self) -> bool:
        has_news = self._lines or self._progress or self._pending.ByteSize()
        return bool(has_news or self._calls)

    def _look(self) -> None:
        if time.monotonic() < self._looks_at_s:
            return
        self._looks_at_s = time.monotonic() + LOOK_EVERY_S
        with self._wake:
            looks = list(self._tasks.items())
            self._looks = bool(looks)
        # In a thread of its own: it may wait for user code, such as a restriction tracker, for
        # which log lines must not wait.
        if looks and (self._looking is None or not self._looking.is_alive()):
            self._looking = threading.Thread(
                target=self._send_all_progress, args=(looks,), name="beam-looks", daemon=True
            )
            self._looking.start()

    def _send_all_progress(self, looks: Sequence[tuple[int, Look]]) -> None:
        for attempt, look in looks:
            self._send_progress(attempt, look)

    def _take(self) -> WorkerFrame | None:
        with self._wake:
            if not self._has_something():
                return None
            frame, self._pending = self._pending, WorkerFrame()
            frame.log_entries.extend(self._take_lines())
            # Without the lines that remain: the driver waits for these.
            frame.messages_sent = self._sent - len(self._lines)
            frame.progress.extend(self._progress.values())
            frame.awaits_end = self._awaits_end
            self._progress.clear()
            self._calls = False
            return frame

    def _take_lines(self) -> list[bytes]:
        """Remove and return the next lines to send. The caller holds the lock."""
        lines: list[bytes] = []
        size = 0
        while self._lines and (not lines or size + len(self._lines[0]) <= MOST_BYTES_OF_LINES):
            lines.append(self._lines.popleft())
            size += len(lines[-1])
        return lines

    def _send(self, frame: WorkerFrame) -> None:
        if self._link is None and not self._is_lost:
            self._link = self._connect(self.route, self.worker)
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.send(frame.SerializeToString())
                self._begin_to_hear(self._link)
                return
        with self._wake:
            self._is_lost = True
            self._wake.notify_all()
            self._tasks.clear()
        for coded in frame.log_entries:
            STDERR.log(beam_fn_api_pb2.LogEntry.FromString(coded))
        if frame.left_out:
            STDERR.leave_out(frame.left_out)

    def _begin_to_hear(self, link: DriverLink) -> None:
        if (self._held or self._awaits_end) and self._hearing is None:
            self._hearing = threading.Thread(
                target=self._hear, args=(link,), name="beam-backchannel-down", daemon=True
            )
            self._hearing.start()

    def _hear(self, link: DriverLink) -> None:
        """Handle the driver's messages, in a thread of its own."""
        with logging_to(self.handler), self._within():
            while (frames := link.receive()) is not None:
                for frame in frames:
                    for attempt in frame.accepted:
                        self._finalize(attempt)
                    if frame.job_ended:
                        self._end_job()
            with self._wake:
                self._hears = False
                self._wake.notify_all()
            self._drop_held()  # the driver will never accept these attempts

    def _finalize(self, attempt: int) -> None:
        with self._wake:
            accepted = self._held.pop(attempt, _Held((), None))
            void = [
                number
                for number, held in self._held.items()
                if held.epoch is not None and held.epoch < (accepted.epoch or 0)
            ]
            dropped = [self._held.pop(number).callbacks for number in void]
        for each in accepted.callbacks:
            each.run()
        for each in itertools.chain.from_iterable(dropped):
            each.drop()
        with self._wake:
            self._pending.finalized.append(attempt)
            self._sent += 1
            self._wake_up()

    def _end_job(self) -> None:
        with self._wake:
            self._is_ending = True  # so that ``close`` does not end the sending thread before
        self._drop_held()
        self._on_end()
        with self._wake:
            self._pending.has_torn_down = True
            self._is_ending = False
            self._wake_up()

    def _drop_held(self) -> None:
        with self._wake:
            held, self._held = self._held, {}
        for callbacks, _ in held.values():
            for each in callbacks:
                each.drop()
