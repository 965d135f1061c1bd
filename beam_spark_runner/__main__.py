"""``python -m beam_spark_runner``: the job server."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence

from beam_spark_runner.core.errors import OptionsError, RunnerError
from beam_spark_runner.job.service.server import JobServer
from beam_spark_runner.job.waiting import wait_for
from beam_spark_runner.options.server import parse_server_options

_LOGGER = logging.getLogger(__name__)
_ENDS_WITHIN_S = 28.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, SIGINT, or the end of Spark's JVM; return the exit status.

    Args:
        arguments: The command line without the program's name. None: ``sys.argv``.
    """
    # ``force``: Beam logs while it is imported, which installs a handler with another format.
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    ending = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ending.set())
    try:
        config = parse_server_options(sys.argv[1:] if arguments is None else arguments)
        server = JobServer(config, ending.set)
    except OptionsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RunnerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"job service at {server.url}, artifacts at {server.artifact_url}", flush=True)
    if server.metrics_url is not None:
        print(f"metrics at {server.metrics_url}", flush=True)
    wait_for(ending)
    if server.has_lost_spark:
        _LOGGER.error("Spark's JVM has ended, and no job can run: the job server ends, too")
    _LOGGER.info("ending: running jobs are cancelled")
    # Python waits for the threads of jobs at exit; one that is stuck must not keep the process.
    late = threading.Timer(_ENDS_WITHIN_S, os._exit, (1,))
    late.daemon = True
    late.start()
    if not server.stop():
        sys.stderr.flush()
        os._exit(1)
    late.cancel()
    return 1 if server.has_lost_spark else 0


if __name__ == "__main__":
    sys.exit(main())
