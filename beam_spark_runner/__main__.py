"""``python -m beam_spark_runner``: the job server."""

import atexit
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

from beam_spark_runner.core.errors import OptionsError, RunnerError
from beam_spark_runner.job.run.signal_waiting import wait_for
from beam_spark_runner.job.server.job_server import JobServer
from beam_spark_runner.options.server_options import parse_server_options

_LOGGER = logging.getLogger(__name__)
_ENDS_WITHIN_S = 28.0


class _EndedError(BaseException):
    """A signal has ended the server while Spark was starting."""


class _Ending:
    """Handles SIGTERM and Ctrl-C.

    Attributes:
        has_begun: Is set by the first signal; whatever else ends the server sets it, too.
    """

    def __init__(self) -> None:
        self.has_begun = threading.Event()
        self._interrupts = False

    def __call__(self, *_: object) -> None:
        """Handle a signal."""
        self.has_begun.set()
        if self._interrupts:
            self._interrupts = False  # a second one would interrupt what the first one cleans up
            raise _EndedError

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """Have the first signal raise an exception inside."""
        self._interrupts = True
        try:
            if self.has_begun.is_set():
                raise _EndedError
            yield
        finally:
            self._interrupts = False


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, or the end of Spark's JVM; then end this process.

    Args:
        arguments: The command line without the program's name. None: ``sys.argv``.

    Returns:
        The exit status, if the server did not start.
    """
    # ``force``: Beam logs while it is imported, which installs a handler with another format.
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    # At INFO, Py4J logs each connection to the JVM that it closes.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    ending = _Ending()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, ending)
    try:
        config = parse_server_options(sys.argv[1:] if arguments is None else arguments)
        server = JobServer(config, ending.has_begun.set, ending.interrupting())
    except OptionsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (RunnerError, _EndedError, KeyboardInterrupt) as error:
        if ending.has_begun.is_set():  # it may also be the cause of an error of Spark's
            _LOGGER.info("ended while Spark was starting")
            _limit_end()
            _leave(0)
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"job service at {server.url}, artifacts at {server.artifact_url}", flush=True)
    if server.metrics_url is not None:
        print(f"metrics at {server.metrics_url}", flush=True)
    if server.page_url is not None:
        print(f"job page at {server.page_url}", flush=True)
    wait_for(ending.has_begun)
    _limit_end()
    if server.has_lost_spark:
        _LOGGER.error("Spark's JVM has ended, and no job can run: the job server ends, too")
    _LOGGER.info("ending: running jobs are cancelled, or suspended if they are in --jobs_dir")
    have_ended = server.stop()
    _leave(0 if have_ended and not server.has_lost_spark else 1)


def _limit_end() -> None:
    """End the process after a while, whatever its threads do."""
    late = threading.Timer(_ENDS_WITHIN_S, os._exit, (1,))
    late.daemon = True
    late.start()


def _leave(status: int) -> NoReturn:
    """End the process now, as Python does, but without waiting for its threads.

    Those of jobs and calls may never end. Spark's JVM ends with this process.
    """
    atexit._run_exitfuncs()  # which remove temporary files, and flush logs
    for each in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # whoever read it has gone
            each.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
