"""Log lines of user code: which ones are sent, in which form, and how many at most.

The embedded harness runs user code in this process, whose root logger then takes its records; an
SDK harness in another process sends entries in the same form.
"""

import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from apache_beam.portability.api import beam_fn_api_pb2
from typing_extensions import override

from beam_spark_runner.backchannel.log_rate_limiter import LogRateLimiter
from beam_spark_runner.core.rendering import (
    MAX_TRACEBACK_LENGTH,
    message_of,
    render_error,
    valid_text,
)

_LOGGER = logging.getLogger(__name__)
_Severity = beam_fn_api_pb2.LogEntry.Severity
# In ascending order.
_LEVELS = {
    _Severity.TRACE: logging.DEBUG - 1,
    _Severity.DEBUG: logging.DEBUG,
    _Severity.INFO: logging.INFO,
    _Severity.NOTICE: logging.INFO + 1,
    _Severity.WARN: logging.WARNING,
    _Severity.ERROR: logging.ERROR,
    _Severity.CRITICAL: logging.CRITICAL,
}
_NAMES = {number: name for name, number in _Severity.Enum.items()}
"""Without values that later versions of Beam may add."""
_GO_CLIENT = "/go/pkg/beam/runners/universal/runnerlib/"
_FALSE_ALARMS = (
    ("/apache_beam/options/pipeline_options.py", "Discarding "),
    ("/apache_beam/ml/inference/base.py", "Resource module is not available"),
)
_CATEGORY = "beam_spark_runner:warning"
_LOGGER_NAME = "beam_spark_runner:logger"
_IS_SHOWN = "beam_spark_runner:shown"
_MAX_NAME_LENGTH = 200  # characters
_DEFAULT_LEVEL = "default_sdk_harness_log_level"
_LEVELS_BY_NAME = "sdk_harness_log_level_overrides"


def level_of(entry: beam_fn_api_pb2.LogEntry) -> int:
    """Return the level of ``logging`` for an entry."""
    return _LEVELS.get(entry.severity, logging.INFO)


def put_category(entry: beam_fn_api_pb2.LogEntry, name: str) -> None:
    """Mark an entry as a warning of Python's ``warnings``, of the category ``name``."""
    entry.custom_data[_CATEGORY] = name


def put_logger(entry: beam_fn_api_pb2.LogEntry, name: str) -> None:
    """Name the logger of a line."""
    entry.custom_data[_LOGGER_NAME] = valid_text(name, _MAX_NAME_LENGTH)


def logger_of(entry: beam_fn_api_pb2.LogEntry) -> str:
    """Return the name of the logger that user code has used; empty: the root, or it is not known.

    SDK harnesses without this package do not send it.
    """
    if not entry.HasField("custom_data") or _LOGGER_NAME not in entry.custom_data:
        return ""
    name = entry.custom_data[_LOGGER_NAME]
    return valid_text(name, _MAX_NAME_LENGTH) if isinstance(name, str) else ""


class Shown:
    """A log sink for lines that the handlers of the driver's own process have shown already."""

    def __init__(self, to: "LogSink") -> None:
        self._to = to

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        """Mark a line, and pass it on."""
        entry.custom_data[_IS_SHOWN] = True
        self._to.log(entry)

    def leave_out(self, lines: int) -> None:
        """See ``LogSink``."""
        self._to.leave_out(lines)


def was_shown(entry: beam_fn_api_pb2.LogEntry) -> bool:
    """Whether a line has come through ``Shown``."""
    return entry.HasField("custom_data") and _IS_SHOWN in entry.custom_data


def redirect_warnings(take: Callable[[str, str, str, int], None]) -> None:
    """Have Python's ``warnings`` call ``take`` with text, category, file and line."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: Any = None,
        line: str | None = None,
    ) -> None:
        name = f"{category.__module__}.{category.__qualname__}"
        text = message_of(message) if isinstance(message, Warning) else valid_text(message)
        take(text, name, valid_text(filename), lineno)

    warnings.showwarning = show


def category_of(entry: beam_fn_api_pb2.LogEntry) -> type[Warning] | None:
    """Return the category of a warning; None: the entry is no warning of Python's ``warnings``.

    It is UserWarning if this process has not imported the class, because an entry of a worker must
    not cause an import.
    """
    if not entry.HasField("custom_data") or _CATEGORY not in entry.custom_data:
        return None
    module, _, name = str(entry.custom_data[_CATEGORY]).rpartition(".")
    category = getattr(sys.modules.get(module), name, None)
    return category if isinstance(category, type) and issubclass(category, Warning) else UserWarning


def shorten(entry: beam_fn_api_pb2.LogEntry) -> None:
    """Leave out the middle of texts that are too long for a message to the driver."""
    if entry.ByteSize() <= MAX_TRACEBACK_LENGTH:
        return
    entry.message = valid_text(entry.message, MAX_TRACEBACK_LENGTH)
    entry.trace = valid_text(entry.trace, MAX_TRACEBACK_LENGTH)
    if entry.custom_data.ByteSize() > MAX_TRACEBACK_LENGTH:
        entry.ClearField("custom_data")


def is_chatter(entry: beam_fn_api_pb2.LogEntry) -> bool:
    """Whether an entry is about the SDK's own start, or about what the runner reports itself.

    The boot programs of Beam's containers log their start, with all pipeline options.

    The Go client logs the messages of its job. With LOOPBACK it is the SDK harness, too, so that
    these entries arrive here: if they were messages of the job again, there would be a loop.
    """
    where: str = entry.log_location.rpartition(":")[0]
    if _GO_CLIENT in where or _is_false_alarm(where, entry.message):
        return True
    severity: int = entry.severity
    info: int = _Severity.INFO
    error: int = _Severity.ERROR
    if is_of_boot_program(entry):
        return severity < info
    if where.endswith("/apache_beam/runners/worker/sdk_worker_main.py"):
        return severity < error
    if where.endswith(("/runners/worker/sdk_worker.py", "/apache_beam/runners/common.py")):
        return severity <= info or severity == error
    return severity <= info and "/apache_beam/runners/worker/" in where


def _is_false_alarm(where: str, message: str) -> bool:
    """Whether Beam warns of what is no defect.

    A worker discards options that only the program or the runner understands; their values may be
    secret. RunInference blames the platform when packages for models in other processes are absent.
    """
    return any(
        where.endswith(file) and message.startswith(beginning) for file, beginning in _FALSE_ALARMS
    )


def is_of_boot_program(entry: beam_fn_api_pb2.LogEntry) -> bool:
    """Whether a boot program has sent an entry, or the SDK in its container has printed it.

    Source: Beam Go ``container/tools/logging.go``; all loggers of SDKs set ``log_location``.
    """
    return not entry.log_location


class LogSink(Protocol):
    """Receives log lines; see ``Backchannel``."""

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None: ...
    def leave_out(self, lines: int) -> None: ...


class Stderr:
    """Writes the log lines of processes without a connection to a driver to standard error."""

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        """Write a line."""
        level = _NAMES.get(entry.severity, f"SEVERITY {entry.severity}")
        step = f" [{entry.transform_id}]" if entry.transform_id else ""
        trace = f"\n{entry.trace}" if entry.trace else ""
        with contextlib.suppress(OSError, ValueError):  # stderr is closed
            print(f"{level}: {entry.message}{step}{trace}", file=sys.stderr)

    def leave_out(self, lines: int) -> None:
        """Write how many lines are missing."""
        with contextlib.suppress(OSError, ValueError):
            print(f"{lines} log lines were dropped because there were too many", file=sys.stderr)


STDERR = Stderr()


class LogLines:
    """Limits the rate of the log lines of one stream, and reports how many are dropped.

    Threads: one at a time.
    """

    def __init__(self, to: Callable[[], LogSink]) -> None:
        """Create a filter; ``to`` returns the present log sink."""
        self._to = to
        self._rate_limiter = LogRateLimiter(time.monotonic())

    def has_room(self) -> bool:
        """Count a line; return False if it exceeds the limit and must be dropped."""
        return self._rate_limiter.lets_through(time.monotonic())

    def send(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        """Pass on a line for which ``has_room`` returned True."""
        self.report_left_out()
        self._to().log(entry)

    def leave_out(self, lines: int) -> None:
        """Pass on the number of lines that the sender has left out."""
        self._to().leave_out(lines)

    def report_left_out(self) -> None:
        """Report how many lines were dropped since the last report, if any."""
        count = self._rate_limiter.take_left_out()
        if count:
            self._to().leave_out(count)


class LogHandler(logging.Handler):
    """Handles the records of this process's loggers, in a Python worker. See ``LogLines``."""

    def __init__(self, to: LogSink, running_transform: Callable[[], str] = str) -> None:
        """Create a handler.

        Args:
            to: The log sink of the lines.
            running_transform: Returns the id of the transform whose code the calling thread
                runs; empty if none, or if it is not known.
        """
        super().__init__()
        self._lines = LogLines(lambda: to)
        self._running_transform = running_transform

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on. A record that exceeds the limit is dropped before it is formatted."""
        if self._lines.has_room():
            try:
                entry = self._entry_of(record)
            except Exception:
                self.handleError(record)  # arguments that do not fit the format: goes to stderr
                return
            if not is_chatter(entry):
                self._lines.send(entry)

    def warn(self, text: str, category: str, filename: str, lineno: int) -> None:
        """Pass on a warning of Python's ``warnings``; see ``redirect_warnings``."""
        with self.lock:  # type: ignore[union-attr]
            if not self._lines.has_room():
                return
            entry = beam_fn_api_pb2.LogEntry(
                severity=_Severity.WARN,
                message=text,
                log_location=f"{filename}:{lineno}",
                transform_id=self._running_transform(),
            )
            entry.timestamp.GetCurrentTime()
            put_category(entry, category)
            self._lines.send(entry)

    @override
    def flush(self) -> None:
        """Report how many lines were dropped, at the end of a task."""
        with self.lock:  # type: ignore[union-attr]
            self._lines.report_left_out()

    def _entry_of(self, record: logging.LogRecord) -> beam_fn_api_pb2.LogEntry:
        entry = beam_fn_api_pb2.LogEntry(
            severity=_severity_of(record.levelno),
            message=valid_text(record.getMessage()),
            thread=valid_text(record.threadName or ""),
            log_location=valid_text(
                f"{record.pathname or record.module}:{record.lineno or record.funcName}"
            ),
            transform_id=self._running_transform(),
        )
        entry.timestamp.FromNanoseconds(int(record.created * 1e9))
        if record.name != logging.root.name:
            put_logger(entry, record.name)
        if record.exc_info and record.exc_info[1] is not None:
            _, error, frames = record.exc_info
            entry.trace = render_error(error, frames).traceback_text.rstrip()
        return entry


def _severity_of(level: int) -> Any:
    reached = [severity for severity, least in _LEVELS.items() if least <= level]
    return reached[-1] if reached else _Severity.TRACE


class Levels:
    """Sets the levels of this process's loggers by a job's options. Threads: one."""

    def __init__(self) -> None:
        self._previous: dict[str, int] = {}

    def use(self, options: Mapping[str, Any]) -> None:
        """Set the levels of one job, after those of the previous job are undone.

        Args:
            options: The pipeline options by name, as SDK harnesses read them.

        Source: Beam Python ``sdk_worker_main``; for an invalid level, an error is logged and INFO
            is used.
        """
        for name, previous in self._previous.items():
            logging.getLogger(name).setLevel(previous)
        self._previous = {}
        levels: dict[str, Any] = {"": options.get(_DEFAULT_LEVEL) or "INFO"}
        by_name = options.get(_LEVELS_BY_NAME)
        if isinstance(by_name, Mapping):
            levels.update(by_name)
        for name, level in levels.items():
            logger = logging.getLogger(name)
            self._previous[name] = logger.level
            try:
                logger.setLevel(int(level) if str(level).isdecimal() else str(level).upper())
            except ValueError:
                logger.setLevel(logging.INFO)
                _LOGGER.error("%r is not a log level (for %s); INFO is used", level, name or "all")
