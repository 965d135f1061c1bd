"""The threads of a worker's conversation with the driver, and the lock that guards it."""

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from apache_beam.portability.api import beam_fn_api_pb2

from beam_spark_runner._generated.backchannel_pb2 import DriverFrame, WorkerFrame
from beam_spark_runner.backchannel import conversation
from beam_spark_runner.backchannel.conversation import Conversation, Look
from beam_spark_runner.backchannel.log_lines import STDERR, LogHandler
from beam_spark_runner.backchannel.process_log import logging_to
from beam_spark_runner.backchannel.transport import DriverLink
from beam_spark_runner.core.callbacks import Callbacks

_LOGGER = logging.getLogger(__name__)

_Given = ParamSpec("_Given")
_Outcome = TypeVar("_Outcome")


class Threads:
    """Carries a conversation: one thread sends, one hears the driver, one asks tasks.

    Threads: any. Its own begin with the first event that leads to something.

    Attributes:
        changed: Guards the conversation, and notifies of its changes.
    """

    def __init__(
        self,
        talk: Conversation,
        connect: Callable[[], DriverLink | None],
        on_end: Callable[[], object],
        within: Callable[[], contextlib.AbstractContextManager[None]],
        handler: LogHandler,
        stacks: Callable[[], str],
        memory: Callable[[], str],
    ) -> None:
        """Carry a conversation, without a thread so far.

        Args:
            talk: The conversation. Whoever calls it has ``changed``.
            connect: Opens the connection, or returns None if it cannot.
            on_end: Called when the driver reports that the job has ended.
            within: Returns a context for all that the threads do for the job.
            handler: Takes the log lines of callbacks and ``on_end``.
            stacks: Returns what the running tasks do.
            memory: Returns a memory profile of the process, after some seconds.
        """
        self._talk = talk
        self._connect = connect
        self._on_end = on_end
        self._within = within
        self._handler = handler
        self._stacks, self._memory = stacks, memory
        self.changed = threading.Condition()
        self._sending: threading.Thread | None = None
        self._looking: threading.Thread | None = None

    def report(
        self,
        event: Callable[Concatenate[float, _Given], _Outcome],
        *arguments: _Given.args,
        **more: _Given.kwargs,
    ) -> _Outcome:
        """Report an event, and wake all who wait, unless it changes nothing for them."""
        with self.changed:
            outcome = event(time.monotonic(), *arguments, **more)
            if outcome is not False:
                self._wake_up()
            return outcome

    def _wake_up(self) -> None:
        if self._sending is None and not self._talk.is_over:
            self._sending = _start("beam-backchannel", self._send)
        self.changed.notify_all()

    def _send(self) -> None:
        """Do what the conversation asks for, in its own thread."""
        link: DriverLink | None = None
        with self._within():
            try:
                while not isinstance(action := self._next_action(), conversation.Leave):
                    if isinstance(action, conversation.AskTasks):
                        self._ask(action.tasks)
                    elif link is None:
                        link = self._open()
                    elif isinstance(action, conversation.Send):
                        self._send_frame(link, action.frame)
                    else:
                        _start("beam-backchannel-down", functools.partial(self._hear, link))
            finally:
                if link is not None:
                    link.close()
                self._clear_up()

    def _next_action(self) -> conversation.Action:
        with self.changed:
            while isinstance(
                action := self._talk.next_action(time.monotonic()), conversation.Sleep
            ):
                self.changed.notify_all()  # some wait until nothing is left to send
                self.changed.wait(action.seconds)
            return action

    def _ask(self, tasks: Sequence[tuple[int, Look]]) -> None:
        # In its own thread: it may wait for user code, such as a restriction tracker, for
        # which log lines must not wait.
        if self._looking is None or not self._looking.is_alive():
            self._looking = _start("beam-looks", functools.partial(self.send_progress, tasks))

    def _open(self) -> DriverLink | None:
        link = self._connect()
        if link is None:
            self.report(self._talk.lost, "no connection can be opened")
        else:
            self.report(self._talk.connected)
        return link

    def _send_frame(self, link: DriverLink, frame: WorkerFrame) -> None:
        try:
            link.send(frame.SerializeToString())
        except OSError as error:
            self.report(self._talk.lost, str(error))
        else:
            self.report(self._talk.sent)

    def _clear_up(self) -> None:
        remains = self.report(self._talk.left)
        for line in remains.lines:
            STDERR.log(beam_fn_api_pb2.LogEntry.FromString(line))
        if remains.left_out:
            STDERR.leave_out(remains.left_out)
        _drop(remains.drop)
        if self._talk.is_lost:
            with self.changed:
                story = str(self._talk.story)
            _LOGGER.debug("the connection to the driver is lost (%s)", story)

    def _hear(self, link: DriverLink) -> None:
        """Handle the driver's messages, in its own thread."""
        with logging_to(self._handler), self._within():
            try:
                while (frames := link.receive()) is not None:
                    for frame in frames:
                        self._on_frame(frame)
            finally:
                _drop(self.report(self._talk.hung_up))

    def _on_frame(self, frame: DriverFrame) -> None:
        for attempt in frame.accepted:
            verdict = self.report(self._talk.accepted, attempt)
            for callbacks in verdict.run:
                callbacks.run()
            _drop(verdict.drop)
            self.report(self._talk.finalized, attempt)
        if frame.wants_stacks:
            # In its own thread: an SDK harness may take seconds to answer.
            answer = functools.partial(self._answer, frame.wants_stacks, self._stacks)
            _start("beam-stacks", answer)
        if frame.wants_memory:
            answer = functools.partial(self._answer, frame.wants_memory, self._memory)
            _start("beam-memory", answer)
        if frame.job_ended:
            _drop(self.report(self._talk.job_ended))
            self._on_end()
            self.report(self._talk.torn_down)

    def _answer(self, request: int, text: Callable[[], str]) -> None:
        self.report(self._talk.report_stacks, request, text())

    def send_progress(self, tasks: Sequence[tuple[int, Look]]) -> None:
        """Ask tasks, and report what they answer. Their errors are ignored."""
        for attempt, look in tasks:
            progress = None
            # The task may continue meanwhile: a dict grows while it is read, a bundle ends.
            with contextlib.suppress(Exception):
                progress = look()
            if progress is not None:
                progress.attempt = attempt
                self.report(self._talk.report_progress, progress)


def _start(name: str, run: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def _drop(callbacks: Sequence[Callbacks]) -> None:
    for entry in callbacks:
        entry.drop()
