"""The messages of a job: log lines of user code, warnings of the runner, and the failure.

Each is logged in this process at once, by the logger ``beam_spark_runner.sdk``, and stored in the
form of Beam's Job API. The records of log lines have the name of user code's own logger. The
failure of a program's own job is only stored: ``wait_until_finish`` raises it.
"""

import logging
import threading
import time
import warnings
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2, beam_job_api_pb2

from beam_spark_runner.backchannel.log_lines import category_of, level_of, logger_of
from beam_spark_runner.backchannel.log_rate_limiter import LogRateLimiter
from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.rendering import (
    MAX_TRACEBACK_LENGTH,
    class_name,
    message_of,
    valid_text,
)
from beam_spark_runner.job.watching.event_log import EventLog, Sink

SDK_LOGGER = "beam_spark_runner.sdk"
MAX_MESSAGES = 10_000
MAX_BYTES = 32 << 20
"""The most messages and bytes that are stored for one job; the oldest are dropped."""
_BYTES_OF_A_MESSAGE = 300  # in addition to its serialised size: measured
_PER_SECOND, _AT_ONCE = 1_000, 10_000  # rate limit of log lines, and its burst, of all workers

_LOGGER = logging.getLogger(SDK_LOGGER)
_IMPORTANCE = (
    (logging.ERROR, beam_job_api_pb2.JobMessage.JOB_MESSAGE_ERROR),
    (logging.WARNING, beam_job_api_pb2.JobMessage.JOB_MESSAGE_WARNING),
    (logging.INFO, beam_job_api_pb2.JobMessage.JOB_MESSAGE_BASIC),
    (logging.DEBUG, beam_job_api_pb2.JobMessage.JOB_MESSAGE_DETAILED),
)


class JobMessages:
    """The messages of one job. Threads: any.

    Args:
        step_names: The full name of each transform, by its id.
        also: Another log to which each message is appended, too.
        job_id: The job's id, with which its messages are logged where one process has many jobs.

    Attributes:
        log: The latest messages, which readers can follow.
    """

    def __init__(
        self,
        step_names: Mapping[TransformId, str],
        also: Sink[beam_job_api_pb2.JobMessage] | None = None,
        job_id: str = "",
    ) -> None:
        self._step_names = step_names
        self._of_job = f"{job_id}: " if job_id else ""
        self.log: EventLog[beam_job_api_pb2.JobMessage] = EventLog(
            MAX_MESSAGES, also, max_bytes=MAX_BYTES, size_of=size_of
        )
        self._number = 0
        self._of_start = ""
        self._left_out = 0
        self._rate_limiter = LogRateLimiter(
            time.monotonic(), per_second=_PER_SECOND, at_once=_AT_ONCE
        )
        self._lock = threading.Lock()
        self._warnings_given: dict[Any, Any] = {}

    def number_start(self, start: int) -> None:
        """Number the messages of a later start of the job: those of start 2 are 2.1, 2.2, ….

        Args:
            start: The number of the start; that of the first one is 1.
        """
        self._of_start = f"{start}." if start > 1 else ""

    def take_line(
        self, worker: str, entry: beam_fn_api_pb2.LogEntry, *, is_logged: bool = False
    ) -> None:
        """Log and store a log line of user code, unless there are too many.

        Args:
            worker: The name of the Python worker or SDK harness.
            entry: The line.
            is_logged: Whether this process has logged it already.
        """
        with self._lock:
            if not self._rate_limiter.lets_through(time.monotonic()):
                return
        step = self._step_names.get(TransformId(entry.transform_id), entry.transform_id)
        where = f"{step}, {worker}" if step else worker
        trace = f"\n{entry.trace}" if entry.trace else ""
        level = level_of(entry)
        extra = {"beam_step": step, "beam_worker": worker}
        # A warning that is issued again has no place for the job's id.
        category = None if self._of_job else category_of(entry)
        if not is_logged and (category is None or not self._warn_again(category, entry)):
            self._log(level, entry, where, trace, extra)
        text = f"{entry.message} [{where}]{trace}"
        if level > logging.WARNING:  # see ``fail``
            level, text = logging.WARNING, f"{logging.getLevelName(level)}: {text}"
        self._store(level, text, _time_of(entry))

    def _log(
        self,
        level: int,
        entry: beam_fn_api_pb2.LogEntry,
        where: str,
        trace: str,
        extra: dict[str, str],
    ) -> None:
        if not _LOGGER.isEnabledFor(level):
            return
        name = logger_of(entry)
        # The format of a server's log has no names of loggers.
        of_job = f"{self._of_job}{name}: " if self._of_job and name else self._of_job
        # Handlers find the line itself as the first argument, whoever runs the job.
        form = of_job.replace("%", "%%") + "%s [%s]%s"
        file, _, line = entry.log_location.rpartition(":")
        record = _LOGGER.makeRecord(
            name or SDK_LOGGER,
            level,
            file,
            int(line) if line.isdecimal() else 0,
            form,
            (entry.message, where, trace),
            None,
            extra=extra,
        )
        _LOGGER.handle(record)

    def _warn_again(self, category: type[Warning], entry: beam_fn_api_pb2.LogEntry) -> bool:
        """Issue a worker's warning in this process, whose filters decide whether it is shown.

        Returns:
            Whether it was issued. False: the filters make it an error, which is suppressed.
        """
        file, _, line = entry.log_location.rpartition(":")
        try:
            warnings.warn_explicit(
                entry.message,
                category,
                file,
                int(line) if line.isdecimal() else 0,
                registry=self._warnings_given,
            )
        except Exception:  # also: a user's class of warnings may need other arguments
            return False
        return True

    def leave_out(self, lines: int) -> None:
        """Count log lines that a worker has dropped because there were too many."""
        with self._lock:
            self._left_out += lines

    def inform(self, text: str) -> None:
        """Log and store an informational message of the runner."""
        _LOGGER.info("%s%s", self._of_job, text)
        self._store(logging.INFO, text)

    def warn(self, text: str) -> None:
        """Log and store a warning of the runner."""
        _LOGGER.warning("%s%s", self._of_job, text)
        self._store(logging.WARNING, text)

    def fail(self, error: BaseException) -> None:
        """Store the reason of the job's failure. A server logs it; a program's job raises it.

        It is the only message of the highest importance: Java's client takes the first of these for
        the reason, Python's the last. An SDK may log errors in a job that goes well.
        """
        text = message_of(error, MAX_TRACEBACK_LENGTH) or class_name(error)
        if self._of_job:
            _LOGGER.error("%s%s", self._of_job, text)
        self.store_failure(text)

    def store_failure(self, text: str) -> None:
        """Store the reason of the job's failure, which was logged already."""
        self._store(logging.ERROR, text)

    def close(self) -> None:
        """Warn of the number of dropped log lines, if any, and close the log."""
        with self._lock:
            count = self._left_out + self._rate_limiter.take_left_out()
            self._left_out = 0
        if count:
            self.warn(f"{count:,} log lines were dropped because there were too many")
        self.log.close()

    def _store(self, level: int, text: str, at: str = "") -> None:
        importance = next(
            (name for min_level, name in _IMPORTANCE if level >= min_level),
            beam_job_api_pb2.JobMessage.JOB_MESSAGE_DEBUG,
        )
        with self._lock:
            self._number += 1
            self.log.append(
                beam_job_api_pb2.JobMessage(
                    message_id=f"{self._of_start}{self._number}",
                    time=at or datetime.now(timezone.utc).isoformat(),
                    importance=importance,
                    message_text=valid_text(text, MAX_TRACEBACK_LENGTH),
                )
            )


def _time_of(entry: beam_fn_api_pb2.LogEntry) -> str:
    """Return the time of a log line in RFC 3339; "": its SDK has sent an invalid time."""
    try:
        return str(entry.timestamp.ToJsonString())
    except ValueError:
        return ""


def size_of(message: beam_job_api_pb2.JobMessage) -> int:
    """Return the memory that a message occupies, in bytes."""
    return int(message.ByteSize()) + _BYTES_OF_A_MESSAGE
