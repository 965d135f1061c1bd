"""The preparation of a job, which ends at a time limit, or when the job is cancelled."""

import threading
from collections.abc import Callable

from beam_spark_runner.job.prepare.prepare import PreparedJob
from beam_spark_runner.job.run.control import JobCancelledError, JobControl
from beam_spark_runner.job.server.limited_call import LimitedCall


class Preparing:
    """Prepares one job. Threads: any; one calls ``compile``, once.

    Args:
        control: Requests to cancel the job, also after it was prepared.
    """

    def __init__(self, control: JobControl) -> None:
        self._control = control
        self._call: LimitedCall[PreparedJob] | None = None
        self._lock = threading.Lock()
        self._has_ended = threading.Event()

    def compile(self, compile_: Callable[[], PreparedJob], limit_s: float) -> PreparedJob:
        """Compile the pipeline.

        Args:
            compile_: Compiles it.
            limit_s: The longest time that this may take.

        Raises:
            JobCancelledError: The job was cancelled before or meanwhile.
            PrepareTimeoutError: It has taken too long.
            BaseException: What ``compile_`` raises.
        """
        with self._lock:
            self._control.check()
            self._call = LimitedCall(compile_, limit_s)
        return self._call.result()

    def cancel(self) -> None:
        """Cancel the job; if it is being prepared, that ends now."""
        with self._lock:
            self._control.cancel()
        self.stop()

    def stop(self) -> None:
        """End the preparation, if it runs."""
        if self._call is not None:
            self._call.stop(JobCancelledError())

    def note_end(self) -> None:
        """Let ``wait`` return: the result of ``compile`` was stored, or the job has ended."""
        self._has_ended.set()

    def wait(self) -> None:
        """Wait for ``note_end``; not long, since preparing has a time limit."""
        self._has_ended.wait()
