"""Lets jobs finish for which the program does not wait, before Python ends anything of theirs.

When the main thread has ended, Python waits for all other threads. But no executor starts work any
more by then, in particular none of gRPC's: a job that uses one would fail, or wait forever.
"""

import sys
import threading
from collections.abc import Callable

from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses

_lock = threading.Lock()
_jobs: list[tuple[threading.Event, Callable[[], object]]] = []
_is_registered = False


def finish_before_end(has_ended: threading.Event, cancel: Callable[[], object]) -> None:
    """Have the end of the program wait for a job.

    Args:
        has_ended: Is set at the end of the job.
        cancel: Cancels the job. Is called if Ctrl-C has ended the program while it did not wait.
    """
    global _is_registered
    with _lock:
        _jobs[:] = [job for job in _jobs if not job[0].is_set()]
        _jobs.append((has_ended, cancel))
        if _is_registered:
            return
        _is_registered = True
    # ``atexit`` is too late. Executors register themselves in the same way, when they are imported,
    # and what was registered last is called first.
    threading._register_atexit(_finish)  # type: ignore[attr-defined]


def _finish() -> None:
    # The exception that Python has shown last: the one that has ended the program.
    is_interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
    for has_ended, cancel in list(_jobs):
        if is_interrupted:
            cancel()
        has_ended.wait()
    # Those that are kept for later jobs, where tasks run in this process.
    sdk_harnesses.stop()
