"""A job server in a separate process, for suites whose clients submit to one."""

import atexit
import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_STARTS_WITHIN_S = 170.0
"""On a machine that has a lot to do. Less than what suites allow a test that stands still."""
_ENDS_WITHIN_S = 40.0  # it allows its jobs less than that


def start_job_server(*flags: str, log: Path | None = None) -> str:
    """Start a job server that ends with this process; see ``job_server``.

    Not in a worker of pytest-xdist, whose end does not call what is to be called at the end.
    """
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(job_server(*flags, log=log))


@contextlib.contextmanager
def job_server(*flags: str, log: Path | None = None) -> Iterator[str]:
    """Run a job server on a Spark with two slots.

    Args:
        flags: more options of the server.
        log: gets what the server logs; None: the stderr of this process.

    Yields:
        HOST:PORT of its job service.

    Raises:
        RuntimeError: it has not started in time.
    """
    command = [sys.executable, "-m", "beam_spark_runner"]
    ports = ["--job_port=0", "--artifact_port=0"]
    spark = ["--spark_master_url=local[2]", "--spark_conf=spark.ui.enabled=false"]
    with log.open("ab") if log else contextlib.nullcontext() as stderr:
        server = subprocess.Popen(
            [*command, *ports, *spark, *flags], stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        late = threading.Timer(_STARTS_WITHIN_S, server.kill)
        late.start()
        assert server.stdout is not None
        said = server.stdout.readline()
        late.cancel()
        if not said:
            raise RuntimeError(
                f"the job server did not start within {_STARTS_WITHIN_S:g} s; "
                f"exit status {server.wait()}"
            )
        yield said.split()[3].rstrip(",")
    finally:
        server.terminate()
        try:
            server.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            server.kill()
