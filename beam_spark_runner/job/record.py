"""The states and messages of a job, which readers can follow from their beginning."""

import logging
import time
from collections.abc import Mapping
from typing import NamedTuple

from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.job.event_log import EventLog
from beam_spark_runner.job.messages import MOST_BYTES, MOST_MESSAGES, JobMessages, size_of

_LOGGER = logging.getLogger(__name__)


class StateChange(NamedTuple):
    """A state that a job has entered, and when."""

    state: str  # one of ``PipelineState``
    at_s: float  # Unix time


class JobRecord:
    """The states and messages of one job. Threads: any.

    Args:
        step_names: See ``JobMessages``.
        job_id: See ``JobMessages``; states are logged with it, too.

    Attributes:
        states: All states; closed with the last one.
        messages: The messages; closed before the last state.
        events: The latest states and messages in order; the last state is the last event.
    """

    def __init__(self, step_names: Mapping[TransformId, str], job_id: str = "") -> None:
        self._job_id = job_id
        self.events: EventLog[StateChange | beam_job_api_pb2.JobMessage] = EventLog(
            MOST_MESSAGES, most_bytes=MOST_BYTES, size_of=_size_of
        )
        self.states: EventLog[StateChange] = EventLog(also=self.events)
        self.messages = JobMessages(step_names, also=self.events, job_id=job_id)

    @property
    def state(self) -> str:
        """One of ``PipelineState``."""
        return self.states.events()[-1].state

    def change_state(self, state: str) -> None:
        """Record that the job has entered a state."""
        if self._job_id:
            _LOGGER.info("%s: %s", self._job_id, state)
        self.states.append(StateChange(state, time.time()))

    def end(self, state: str) -> None:
        """Record the last state, and close all logs."""
        self.messages.close()
        self.change_state(state)
        self.states.close()
        self.events.close()


def _size_of(event: StateChange | beam_job_api_pb2.JobMessage) -> int:
    return 0 if isinstance(event, StateChange) else size_of(event)
