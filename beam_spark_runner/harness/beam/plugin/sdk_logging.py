"""Additions to the log stream of an SDK harness that has this package.

Beam's handler drops lines that its queue cannot hold, without reporting how many. Here a flood of
lines is limited at its source, and the dropped lines are counted. Python's warnings, usually
written to stderr, are sent as log entries with their category. A mark follows the lines of each
bundle, so that the runner can wait for them. Lines have the names of their loggers.

``sdk_worker_main`` imports this module because of ``--beam_plugin``, after it has installed its
handler.
"""

import contextlib
import copy
import logging
import threading
import time
import traceback
from collections.abc import Callable
from urllib.parse import quote, unquote

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker.log_handler import FnApiLogRecordHandler

from beam_spark_runner.backchannel.log_lines import redirect_warnings
from beam_spark_runner.backchannel.log_rate_limiter import LogRateLimiter
from beam_spark_runner.core.decimals import decimal_in
from beam_spark_runner.core.rendering import render_error, text_of, valid_text
from beam_spark_runner.harness.beam.map_states import patch_states
from beam_spark_runner.harness.beam.patches import patch_beam
from beam_spark_runner.harness.beam.plugin import answers

_PASSES = "beam_spark_runner_passes"
_OURS = "/beam_spark_runner/"
_LEFT_OUT = f"{_OURS}left_out"
_MARK = f"{_OURS}mark"
_WARNING = f"{_OURS}warning/"
_LOGGER = f"{_OURS}logger/"
"""Log locations of special entries: the count of dropped lines, a mark, a warning followed by its
category and its own location, and a line followed by its logger and its own location."""


class SdkLogging:
    """Extends Beam's log handler in this process. Threads: any."""

    def __init__(self, handler: logging.Handler) -> None:
        self._handler = handler
        self._rate_limiter = LogRateLimiter(time.monotonic())
        self._lock = threading.Lock()
        self._is_marked = True
        self._marks = 0

    def install(self) -> None:
        """Filter the records of all root handlers, and take Python's warnings."""
        for handler in logging.getLogger().handlers:  # another one may write to stderr
            handler.addFilter(self._lets_through)
        self._handler.emit = _naming_loggers(self._handler.emit)  # type: ignore[assignment, method-assign]
        redirect_warnings(self._warn)

    def end_bundle(self) -> int:
        """Log a mark if lines have been logged since the last one; return its number, or 0."""
        self._report_left_out()
        with self._lock:
            if not self._is_marked:
                self._is_marked = True
                self._marks += 1
                self._emit(_MARK, self._marks)
            return self._marks

    def _lets_through(self, record: logging.LogRecord) -> bool:
        decision: bool | None = getattr(record, _PASSES, None)
        if decision is not None:  # decided for another handler
            return decision
        with self._lock:
            passes = self._rate_limiter.lets_through(time.monotonic())
            self._is_marked = False
        setattr(record, _PASSES, passes)
        if passes:
            _make_sendable(record)
            self._report_left_out()
        return passes

    def _report_left_out(self) -> None:
        with self._lock:
            count = self._rate_limiter.take_left_out()
            if count:
                self._emit(_LEFT_OUT, count)

    def _emit(self, place: str, number: int) -> None:
        with self._handler.lock:  # type: ignore[union-attr]
            self._handler.emit(
                logging.LogRecord(__name__, logging.INFO, place, 1, str(number), None, None)
            )

    def _warn(self, text: str, category: str, filename: str, lineno: int) -> None:
        place = f"{_WARNING}{category}/{filename}"
        self._handler.handle(
            logging.LogRecord(__name__, logging.WARNING, place, lineno, text, None, None)
        )


def _naming_loggers(
    emit: Callable[[logging.LogRecord], None],
) -> Callable[[logging.LogRecord], None]:
    """Have a handler send the name of a record's logger with its location."""

    def emit_with_name(record: logging.LogRecord) -> None:
        place = str(record.pathname or record.module)
        if record.name != logging.root.name and not place.startswith(_OURS):
            record = copy.copy(record)  # which other handlers get, too
            record.pathname = f"{_LOGGER}{quote(valid_text(str(record.name)), safe='')}/{place}"
        emit(record)

    return emit_with_name


def _make_sendable(record: logging.LogRecord) -> None:
    """Convert a record that Beam's handler cannot send to text; else logging would raise."""
    error = record.exc_info[1] if record.exc_info else None
    with contextlib.suppress(Exception):
        record.getMessage().encode()
        if error is None:
            return
        "".join(traceback.format_exception(error)).encode()
        return
    try:
        text = valid_text(record.getMessage())
    except Exception:  # its arguments do not fit, or raise
        text = f"{text_of(record.msg)} {text_of(record.args)}"
    record.msg, record.args, record.exc_info = text, None, None
    if error is not None:
        record.exc_text = render_error(error).traceback_text


def left_out_by(entry: beam_fn_api_pb2.LogEntry) -> int:
    """Return the number of dropped lines that an entry reports; 0: it is another entry."""
    return _number(entry, _LEFT_OUT)


def mark_of(entry: beam_fn_api_pb2.LogEntry) -> int:
    """Return the number of a mark; 0: it is another entry."""
    return _number(entry, _MARK)


def take_category(entry: beam_fn_api_pb2.LogEntry) -> str | None:
    """Remove the category's name from a warning's entry, and return it; None: it is a log line."""
    location: str = entry.log_location
    if not location.startswith(_WARNING):
        return None
    category, _, entry.log_location = location.removeprefix(_WARNING).partition("/")
    return category


def take_logger(entry: beam_fn_api_pb2.LogEntry) -> str:
    """Remove the name of a line's logger from its entry, and return it; empty: it has none."""
    location: str = entry.log_location
    if not location.startswith(_LOGGER):
        return ""
    name, _, entry.log_location = location.removeprefix(_LOGGER).partition("/")
    return unquote(name)


def _number(entry: beam_fn_api_pb2.LogEntry, place: str) -> int:
    if entry.log_location.startswith(place):
        return decimal_in(entry.message) or 0
    return 0


def _install() -> SdkLogging | None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, FnApiLogRecordHandler):
            bridge = SdkLogging(handler)
            bridge.install()
            answers.install()
            patch_beam()
            patch_states()
            return bridge
    return None


sdk_logging = _install()
"""The extended log handler; None if this process is no SDK harness."""
