"""The states and messages of a job, which readers can follow from their beginning."""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.job.watching.event_log import EventLog, Sink
from beam_spark_runner.job.watching.messages import MAX_BYTES, MAX_MESSAGES, JobMessages, size_of

_LOGGER = logging.getLogger(__name__)

_LAST = frozenset({PipelineState.DONE, PipelineState.FAILED, PipelineState.CANCELLED})
TRANSITIONS: Mapping[str | None, frozenset[str]] = {
    None: frozenset({PipelineState.STOPPED, PipelineState.STARTING}),
    # It waits in the queue of a job server: the Job API has no other state for that.
    PipelineState.STOPPED: frozenset(
        {PipelineState.STARTING, PipelineState.FAILED, PipelineState.CANCELLED}
    ),
    # Its start may fail, or find that the job was cancelled, or is done elsewhere.
    PipelineState.STARTING: _LAST | {PipelineState.RUNNING},
    PipelineState.RUNNING: _LAST
    | {PipelineState.DRAINING, PipelineState.DRAINED}
    | {PipelineState.STARTING},  # a job that can be continued, in another Spark application
    PipelineState.DRAINING: _LAST | {PipelineState.DRAINED, PipelineState.STARTING},
}
"""The states that may follow each state of a job; None: before the first one on this server."""


class StateChange(NamedTuple):
    """A state that a job has entered, and when."""

    state: str  # one of ``PipelineState``
    at_s: float  # Unix time


class JobRecord:
    """The states and messages of one job. Threads: any.

    Args:
        step_names: See ``JobMessages``.
        job_id: See ``JobMessages``; states are logged with it, too.
        title: What else is logged of the job with its states, for people: its name and client.

    Attributes:
        states: All states; closed with the last one.
        messages: The messages; closed before the last state.
        events: The latest states and messages in order; the last state is the last event.
    """

    def __init__(
        self, step_names: Mapping[TransformId, str], job_id: str = "", title: str = ""
    ) -> None:
        self._title = f"{job_id} {title}".rstrip()
        self._began_s: float | None = None
        self._replayed = self._replayed_states = 0
        self.events: EventLog[StateChange | beam_job_api_pb2.JobMessage] = EventLog(
            MAX_MESSAGES, max_bytes=MAX_BYTES, size_of=_size_of
        )
        self.states: EventLog[StateChange] = EventLog(also=self.events)
        self.messages = JobMessages(step_names, also=self.events, job_id=job_id)

    @property
    def state(self) -> str:
        """One of ``PipelineState``."""
        return self.states.events()[-1].state

    @property
    def has_begun(self) -> bool:
        """Whether the job is neither being prepared nor in the queue of a server."""
        return bool(self.state != PipelineState.STOPPED)

    @property
    def has_last_state(self) -> bool:
        """Whether no further state can follow."""
        return self.state not in TRANSITIONS

    def change_state(self, state: str) -> None:
        """Record that the job has entered a state.

        Raises:
            InvariantError: ``TRANSITIONS`` does not have this change.
        """
        is_first = self.states.appended == self._replayed_states
        previous = None if is_first else self.state
        if state not in TRANSITIONS.get(previous, ()):
            raise InvariantError(f"a job changed from {previous} to {state}")
        if self._title:
            _LOGGER.info("%s: %s", self._title, self._transition_text(state))
        self.states.append(StateChange(state, time.time()))

    def _transition_text(self, state: str) -> str:
        """Return a change of states for people, the last one with the time since the start."""
        previous = self.states.events()[-1:]
        text = " → ".join(map(_word_for, (*(change.state for change in previous), state)))
        if PipelineState.is_terminal(state) and self._began_s is not None:
            return f"{text} in {_duration(time.monotonic() - self._began_s)}"
        if state == PipelineState.STARTING:
            self._began_s = time.monotonic()
        return text

    def replay(self, events: Iterable[StateChange | beam_job_api_pb2.JobMessage]) -> None:
        """Record what happened to the job on an earlier server."""
        for event in events:
            if isinstance(event, StateChange):
                self.states.append(event)
            else:
                self.messages.log.append(event)
        self._replayed, self._replayed_states = self.events.appended, self.states.appended

    def record_in(self, sink: Sink[StateChange | beam_job_api_pb2.JobMessage]) -> None:
        """Append what happens to the job on this server to another log, too."""
        self.events.forward_to(sink, self._replayed)

    def replay_end(self, states: Sequence[StateChange], error: str) -> None:
        """Record how the job has ended on an earlier server.

        Args:
            states: All its states.
            error: Why it has failed. "": it has not.
        """
        self.replay(states[:-1])
        if error:
            self.messages.store_failure(error)
        self.messages.close()
        self.replay(states[-1:])
        self._close()

    def end(self, state: str) -> None:
        """Record the last state, and close all logs."""
        self.messages.close()
        self.change_state(state)
        self._close()

    def suspend(self) -> None:
        """Close all logs without a last state: another server continues the job."""
        self.messages.close()
        self._close()

    def _close(self) -> None:
        self.states.close()
        self.events.close()


def _word_for(state: str) -> str:
    # The Job API has no state for a job in the queue, and calls it stopped.
    return "waiting" if state == PipelineState.STOPPED else state.lower()


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _size_of(event: StateChange | beam_job_api_pb2.JobMessage) -> int:
    return 0 if isinstance(event, StateChange) else size_of(event)
