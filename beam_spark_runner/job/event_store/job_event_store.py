"""Records the states and messages of a job, so that a restarted job server can show them.

It is for people: no result depends on it. Only a thread of its own waits for the storage, and the
job continues if that fails.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone

from apache_beam.portability.api import beam_job_api_pb2

from beam_spark_runner.core.rendering import class_name, message_of
from beam_spark_runner.job.event_store.event_buffer import EventBuffer
from beam_spark_runner.job.event_store.event_files import (
    EventFiles,
    files_of_start,
    folder_of_events,
)
from beam_spark_runner.job.event_store.event_frames import Event, frame
from beam_spark_runner.job.watching.messages import MAX_BYTES, MAX_MESSAGES, size_of
from beam_spark_runner.job.watching.record import StateChange
from beam_spark_runner.storage.folder import Folder

MAX_BYTES_OF_START = 64 << 20
"""The most bytes that one start of a job records."""
_BYTES_OF_LAST_EVENT = 1_000
_NO_LONGER = (
    "further states and messages of this job are not recorded, so that a restarted job server will "
    "not show them: "
)


class _TooManyEventsError(Exception):
    """This start has recorded as much as it may."""


class JobEventStore:
    """Records the events of one start of a job, until it is closed. Threads: any.

    Events wait in a queue, from which a thread moves them to the buffer. The queue is long only if
    the storage does not answer. It then has the limits of ``JobRecord`` and drops the oldest
    events; a replay would drop them, too.

    Args:
        files: What this start writes.
        buffer: Decides when events are written.
        warn: Is called at most once, by the thread: recording has ended because of an error, or of
            the limit.
        max_bytes: The most bytes to record. The last event says that others are missing.
    """

    def __init__(
        self,
        files: EventFiles,
        buffer: EventBuffer,
        warn: Callable[[str], None],
        max_bytes: int = MAX_BYTES_OF_START,
    ) -> None:
        self._files, self._buffer, self._warn = files, buffer, warn
        self._max_bytes = max_bytes
        self._bytes_left = max_bytes - _BYTES_OF_LAST_EVENT
        self._changed = threading.Condition()
        self._queue: deque[tuple[Event, int]] = deque()  # with their sizes
        self._queue_bytes = 0
        self._dropped = 0  # from the queue, since the thread last took events
        # Numbers of events. Those that the queue has dropped count as written.
        self._appended = self._to_flush = self._written = 0
        self._is_closed = self._is_to_clear = self._has_ended = False
        self._thread = threading.Thread(
            target=self._write_all, name="beam-event-store", daemon=True
        )
        self._thread.start()

    def append(self, event: Event) -> None:
        """Record an event soon. After the end of recording, this does nothing."""
        size = 0 if isinstance(event, StateChange) else size_of(event)
        with self._changed:
            if self._has_ended:
                return
            self._queue.append((event, size))
            self._queue_bytes += size
            self._appended += 1
            while len(self._queue) > MAX_MESSAGES or self._queue_bytes > MAX_BYTES:
                self._queue_bytes -= self._queue.popleft()[1]
                self._dropped += 1
            self._changed.notify_all()

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write all events so far, and wait until they are written.

        Args:
            timeout_s: The longest time to wait; None: for as long as the storage takes.

        Returns:
            Whether they are written. False: the time is over, or recording ended before.
        """
        with self._changed:
            target = self._to_flush = self._appended
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._written >= target or self._has_ended, timeout_s)
            return self._written >= target

    def close(self, *, clear: bool = False, timeout_s: float | None = None) -> None:
        """End recording, and wait until all events are written.

        Args:
            clear: Instead of writing the events, delete those of all starts.
            timeout_s: The longest time to wait; None: for as long as the storage takes.

        Raises:
            OSError: The events cannot be deleted.
        """
        with self._changed:
            self._is_closed, self._is_to_clear = True, clear
            self._changed.notify_all()
        self._thread.join(timeout_s)
        if clear:
            self._files.clear()

    def _write_all(self) -> None:
        """Write events until the end of recording; the body of the thread."""
        problem = None
        try:
            while self._write_next():
                pass
        except Exception as error:  # of any kind: nobody may wait for this thread any longer
            problem = message_of(error) or class_name(error)
        with self._changed:
            self._has_ended = True
            self._queue.clear()
            self._changed.notify_all()
        if problem is not None:
            self._warn(f"{_NO_LONGER}{problem}")

    def _write_next(self) -> bool:
        """Wait for events, and write those that are due; return whether more may follow."""
        with self._changed:
            self._changed.wait_for(self._has_work, self._buffer.wait_s(time.monotonic()))
            if self._is_to_clear:
                return False
            events = [event for event, _ in self._queue]
            self._queue.clear()
            dropped, self._dropped, self._queue_bytes = self._dropped, 0, 0
            appended, is_last = self._appended, self._is_closed
            is_wanted = is_last or self._to_flush > self._written
        if dropped:
            text = f"{dropped:,} states and messages are missing here: the storage was too slow"
            self._buffer_up(_warning(text))
        for event in events:
            self._buffer_up(event)
        if not self._buffer.is_empty and (is_wanted or self._buffer.wait_s(time.monotonic()) == 0):
            self._files.write(self._buffer.take_all())
        if self._buffer.is_empty:
            with self._changed:
                self._written = appended
                self._changed.notify_all()
        return not is_last

    def _has_work(self) -> bool:
        return bool(self._queue) or self._is_closed or self._to_flush > self._written

    def _buffer_up(self, event: Event) -> None:
        """Add an event to the buffer, and write this if it is full.

        Raises:
            _TooManyEventsError: It is more than this start may record. What it has is written.
            OSError: The storage fails.
        """
        record = frame(event)
        self._bytes_left -= len(record)
        if self._bytes_left < 0:
            limit = f"since its last start, {self._max_bytes:,} bytes were recorded"
            error = _TooManyEventsError(f"{limit}, which is the limit")
            self._buffer.add(frame(_warning(f"{_NO_LONGER}{error}")), time.monotonic())
            self._files.write(self._buffer.take_all())
            raise error
        self._buffer.add(record, time.monotonic())
        if self._buffer.is_full:
            self._files.write(self._buffer.take_all())


def open_event_store(
    folder: Folder,
    start: int,
    *,
    buffer_bytes: int,
    flush_interval_s: float,
    warn: Callable[[str], None],
) -> JobEventStore:
    """Begin to record the events of a start of a job. The storage is not accessed yet.

    Args:
        folder: The folder of the job, which exists.
        start: The number of the start, which no other one of the job has.
        buffer_bytes: The size of the buffer: events are written when it is full.
        flush_interval_s: The time after which an event is written; ten seconds at least if the
            folder is one of a store, since nothing can be appended to objects.
        warn: See ``JobEventStore``.
    """
    files = files_of_start(folder_of_events(folder), start)
    interval_s = max(flush_interval_s, files.min_interval_s)
    return JobEventStore(files, EventBuffer(buffer_bytes, interval_s), warn)


def _warning(text: str) -> beam_job_api_pb2.JobMessage:
    return beam_job_api_pb2.JobMessage(
        time=datetime.now(timezone.utc).isoformat(),
        importance=beam_job_api_pb2.JobMessage.JOB_MESSAGE_WARNING,
        message_text=text,
    )
