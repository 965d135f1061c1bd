"""Events for tests, and files that do what a test wants."""

import threading

from apache_beam.portability.api import beam_job_api_pb2
from typing_extensions import override

from beam_spark_runner.job.event_store.event_files import EventFiles
from beam_spark_runner.job.event_store.event_frames import Event
from beam_spark_runner.job.watching.record import StateChange


def message(text: str) -> beam_job_api_pb2.JobMessage:
    return beam_job_api_pb2.JobMessage(
        message_id="1",
        time="2026-01-01T00:00:00+00:00",
        importance=beam_job_api_pb2.JobMessage.JOB_MESSAGE_BASIC,
        message_text=text,
    )


def shown(event: Event) -> str:
    return event.state if isinstance(event, StateChange) else event.message_text


class FilesInMemory(EventFiles):
    """What one start has written.

    Args:
        error: Is raised by each write.

    Attributes:
        writes: What each call has written.
        answers: While it is not set, writes wait.
        called: A semaphore with the number of calls so far.
    """

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.writes: list[bytes] = []
        self.answers = threading.Event()
        self.answers.set()
        self.called = threading.Semaphore(0)
        self.is_cleared = False

    @override
    def write(self, records: bytes) -> None:
        self.called.release()
        assert self.answers.wait(60)
        if self.error is not None:
            raise self.error
        self.writes.append(records)

    @override
    def clear(self) -> None:
        self.is_cleared = True
