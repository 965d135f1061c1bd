"""Lets jobs finish for which the program does not wait, before Python ends anything of theirs.

When the main thread has ended, Python waits for all other threads. But no executor starts work any
more by then, in particular none of gRPC's: a job that uses one would fail, or wait forever.
"""

import threading

from beam_spark_runner.harness.remote.sdk_harnesses import sdk_harnesses

_lock = threading.Lock()
_ends: list[threading.Event] = []
_is_registered = False


def finish_before_end(has_ended: threading.Event) -> None:
    """Have the end of the program wait for a job.

    Args:
        has_ended: Is set at the end of the job.
    """
    global _is_registered
    with _lock:
        _ends[:] = [*(each for each in _ends if not each.is_set()), has_ended]
        if _is_registered:
            return
        _is_registered = True
    # ``atexit`` is too late. Executors register themselves in the same way, when they are imported,
    # and what was registered last is called first.
    threading._register_atexit(_finish)  # type: ignore[attr-defined]


def _finish() -> None:
    for each in list(_ends):
        each.wait()
    # Those that are kept for later jobs, where tasks run in this process.
    sdk_harnesses.stop()
