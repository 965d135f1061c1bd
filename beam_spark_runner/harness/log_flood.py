"""Floods of log lines are cut where they begin: in an SDK harness that has this package.

Beam's handler makes a message of each line, and drops those that its queue cannot hold without
saying how many. ``sdk_worker_main`` imports this module, told so by ``--beam_plugin``, when that
handler is there already.
"""

import logging
import threading
import time

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker.log_handler import FnApiLogRecordHandler

from beam_spark_runner.harness.services.log_valve import LogValve

_LEFT_OUT = "/beam_spark_runner/left_out"
"""Where a line that only counts others says it comes from."""


class _FloodFilter(logging.Filter):
    """Keeps from a handler what the runner would leave out. Threads: any."""

    def __init__(self, handler: logging.Handler) -> None:
        super().__init__()
        self._handler = handler
        self._valve = LogValve(time.monotonic())
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        with self._lock:
            passes = self._valve.lets_through(time.monotonic())
        if passes:
            self.tell()
        return passes

    def tell(self) -> None:
        """Say how many were left out since the last time, if there were any."""
        with self._lock:
            count = self._valve.take_left_out()
        if count:
            with self._handler.lock:  # type: ignore[union-attr]
                self._handler.emit(
                    logging.LogRecord(__name__, logging.INFO, _LEFT_OUT, 1, str(count), None, None)
                )


def left_out_by(entry: beam_fn_api_pb2.LogEntry) -> int:
    """Return how many lines an entry counts that were left out; 0: it is a line itself."""
    if entry.log_location.startswith(_LEFT_OUT) and entry.message.isdecimal():
        return int(entry.message)
    return 0


def tell_left_out() -> None:
    """Say how many lines were left out; at the end of a bundle."""
    for each in _FILTERS:
        each.tell()


def _install() -> list[_FloodFilter]:
    filters = []
    for handler in logging.getLogger().handlers:
        if isinstance(handler, FnApiLogRecordHandler):
            filters.append(_FloodFilter(handler))
            handler.addFilter(filters[-1])
    return filters


_FILTERS = _install()  # none but in an SDK harness
