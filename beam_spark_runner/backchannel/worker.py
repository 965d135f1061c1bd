"""The worker's end of the backchannel: sends log lines, progress and metrics while tasks run.

Sending never waits and never fails: messages go to a queue, from which a thread of this
process sends them. The connection is opened with the first message; a short
pipeline that logs nothing opens none. Without a connection, log lines go to stderr, and other
messages are dropped. ``conversation`` decides what is next, and ``threads`` do it.
"""

import contextlib
import functools
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated.backchannel_pb2 import OfferedRows
from beam_spark_runner.backchannel import transport
from beam_spark_runner.backchannel.conversation import Conversation, Look
from beam_spark_runner.backchannel.log_lines import STDERR, LogHandler, shorten
from beam_spark_runner.backchannel.threads import Threads
from beam_spark_runner.backchannel.transport import DriverLink, Route
from beam_spark_runner.core.callbacks import Callbacks

_LOGGER = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""The interval at which running tasks report progress. A quicker job reports none."""

_LAST_WORDS_S = 1.0
IS_KEPT = bool(os.environ.get("SPARK_REUSE_WORKER"))  # whether Spark reuses this process


class Backchannel:
    """One process's connection to the driver of one job.

    Threads: any. It has its own thread as soon as there is a message or task, and another
    one if it waits for messages from the driver.
    """

    def __init__(
        self,
        route: Route,
        connect: Callable[[Route, str], DriverLink | None] = transport.connect,
        on_end: Callable[[], object] = lambda: None,
        running_transform: Callable[[], str] = str,
        within: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        memory: Callable[[], str] = str,
    ) -> None:
        """Create the object without opening the connection.

        Args:
            route: How to reach the driver.
            connect: Opens the connection, or returns None if it cannot.
            on_end: Called when the driver reports that the job has ended.
            running_transform: Returns the id of the transform that the calling thread runs, for
                log lines.
            within: Returns a context for all that the connection's own threads do for the job.
            memory: Returns a memory profile of this process, after some seconds.
        """
        self.worker = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        # Takes the log records of the job's code in this process.
        self.handler = LogHandler(self, running_transform)
        self._talk = Conversation(time.monotonic(), LOOK_EVERY_S)
        if route.address is None and route.folder is None:
            self._talk.lost(time.monotonic(), "there is no way to the driver")
        self._statuses: dict[int, Callable[[], str]] = {}  # by running attempt
        self._threads = Threads(
            self._talk,
            lambda: connect(route, self.worker),
            on_end,
            within,
            self.handler,
            self._stacks,
            functools.partial(_text_of, memory),
        )

    def messages_sent(self) -> tuple[str, int]:
        """Return this process's id and how many messages it has sent; an empty id if none."""
        with self._threads.changed:
            sent = self._talk.messages_sent
        return (self.worker, sent) if sent else ("", 0)

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        """Send a log line."""
        shorten(entry)
        if (
            not self._threads.report(self._talk.log, entry.SerializeToString())
            and self._talk.is_lost
        ):
            STDERR.log(entry)

    def leave_out(self, lines: int) -> None:
        """Report a number of log lines that were left out."""
        if not self._threads.report(self._talk.leave_out, lines) and self._talk.is_lost:
            STDERR.leave_out(lines)

    @contextlib.contextmanager
    def watching(
        self,
        attempt: int,
        look: Look,
        *,
        at_end: bool = True,
        status: Callable[[], str] = str,
    ) -> Iterator[None]:
        """Send the progress of a task attempt at intervals, for as long as the context lasts.

        Args:
            attempt: The id of the task attempt.
            look: Returns the progress; called from another thread. Its errors are ignored.
            at_end: Whether to send the progress at the end, too. This is not needed if the Spark
                job ends soon, since the task's report has the same.
            status: Returns what the task does, with its stack; called from another thread.
        """
        self._statuses[attempt] = status
        self._threads.report(self._talk.begin_task, attempt, look)
        try:
            yield
        finally:
            del self._statuses[attempt]
            with self._threads.changed:
                is_long = self._talk.end_task(time.monotonic(), attempt)
        if at_end and is_long:  # a quicker task has sent no progress so far
            self._threads.send_progress([(attempt, look)])

    def _stacks(self) -> str:
        """Return what the running tasks do. Threads: any."""
        return "\n\n".join(map(_text_of, list(self._statuses.values())))

    def offer(self, rows: OfferedRows) -> None:
        """Offer rows to the driver that a task will not read."""
        self._threads.report(self._talk.offer, rows)

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
        if self._threads.report(self._talk.hold, attempt, callbacks, epoch):
            return True
        for entry in callbacks:
            entry.drop()
        with self._threads.changed:
            story = str(self._talk.story)
        _LOGGER.warning(
            "callbacks of bundle finalization do not run: the driver is not connected (%s)",
            story,
        )
        return False

    @property
    def holds(self) -> bool:
        """Whether callbacks wait for their output to be accepted."""
        return self._talk.holds

    def await_end(self) -> None:
        """Ask the driver to report the end of the job, and call ``on_end`` then."""
        self._threads.report(self._talk.await_end)

    def wait_for_end(self) -> None:
        """Wait until the job has been ended in this process, or the driver cannot report it."""
        self.await_end()
        with self._threads.changed:
            self._threads.changed.wait_for(lambda: self._talk.is_ended)

    def end_task(self) -> tuple[str, int]:
        """Flush the log lines of the task, and return ``messages_sent``."""
        self.handler.flush()
        if not IS_KEPT:
            self.wait_until_sent(_LAST_WORDS_S)
        return self.messages_sent()

    def wait_until_sent(self, timeout_s: float) -> bool:
        """Wait until all messages so far are sent; return False after the timeout."""
        with self._threads.changed:
            return self._threads.changed.wait_for(lambda: self._talk.is_idle, timeout_s)

    def close(self) -> None:
        """Close the connection after queued messages are sent; callbacks that wait are dropped."""
        self._threads.report(self._talk.close)


def _text_of(status: Callable[[], str]) -> str:
    try:
        return status()
    except Exception as error:  # the task may end meanwhile, or there is no room for a profile
        return f"it is not known: {error!r}"
