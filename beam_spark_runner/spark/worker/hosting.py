"""Keeps a Python worker that Spark ends for as long as its siblings need what it hosts."""

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import IO, Any

from pyspark import worker as pyspark_worker

from beam_spark_runner.harness.beam.shared_objects import hosts_shared_objects
from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses

Main = Callable[[IO[bytes], IO[bytes]], Any]


def waiting_before_end(main: Main, wait_for_ends: Callable[[], None]) -> Main:
    """Return a main function of a worker that waits before it ends the worker.

    It ends the worker by an exception: its task has failed, or Spark has closed its socket since
    it was idle. Spark then forgets the process. It ends with PySpark's daemon at the latest.

    Args:
        main: PySpark's function, which runs one task.
        wait_for_ends: Waits until the jobs of the process have ended.
    """

    @functools.wraps(main)
    def run(infile: IO[bytes], outfile: IO[bytes]) -> Any:
        try:
            return main(infile, outfile)
        except BaseException:
            if hosts_shared_objects() or sdk_harnesses.must_stay():
                with contextlib.suppress(OSError, ValueError):
                    outfile.flush()  # Spark waits for the error
                wait_for_ends()
            raise

    run.__dict__[_IS_OURS] = True
    return run


_IS_OURS = "beam_spark_runner_stays"


_DAEMONS = ("__main__", "pyspark.daemon")
"""The modules in which the daemon of PySpark may be: started by Spark, or imported by ours."""


def stay_while_hosting(wait_for_ends: Callable[[], None]) -> None:
    """Let this worker stay if it hosts something when Spark ends it; see ``waiting_before_end``.

    The next task runs by the new function. The daemon of PySpark 4 looks it up before each task;
    that of 3.5 once, when it is imported.
    """
    main = pyspark_worker.main
    if _IS_OURS in vars(main):
        return
    stays = waiting_before_end(main, wait_for_ends)
    pyspark_worker.main = stays
    for daemon in map(sys.modules.get, _DAEMONS):
        if getattr(daemon, "worker_main", None) is main:
            vars(daemon)["worker_main"] = stays
