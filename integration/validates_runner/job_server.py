"""A job server in a process of its own, for suites whose clients submit to one."""

import atexit
import subprocess
import sys

_ENDS_WITHIN_S = 40.0  # it allows its jobs less than that


def start_job_server() -> str:
    """Start a job server on a Spark with two slots; it ends with this process.

    Returns:
        HOST:PORT of its job service.
    """
    command = [sys.executable, "-m", "beam_spark_runner"]
    flags = ["--job_port=0", "--artifact_port=0", "--spark_master_url=local[2]"]
    server = subprocess.Popen(
        [*command, *flags, "--spark_conf=spark.ui.enabled=false"],
        stdout=subprocess.PIPE,
        text=True,
    )

    def stop() -> None:
        server.terminate()
        try:
            server.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            server.kill()

    assert server.stdout is not None
    try:
        said = server.stdout.readline()
    except BaseException:  # the test that needs it first has run out of time
        server.kill()
        raise
    if not said:
        raise RuntimeError(f"the job server did not start; exit status {server.wait()}")
    atexit.register(stop)
    return said.split()[3].rstrip(",")
