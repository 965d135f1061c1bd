"""Watches the thread that runs a task's bundles, from the thread that waits for its output."""

import logging
import time
from collections.abc import Callable

from beam_spark_runner.core.errors import StuckBundleError
from beam_spark_runner.engine.task.open_stages import OpenStages
from beam_spark_runner.harness.beam.thread_stacks import stacks
from beam_spark_runner.harness.bundle import IDLE, Activity, Bundle
from beam_spark_runner.scheduling.lull import EndTask, Lull, ReportLull

_LOGGER = logging.getLogger(__name__)

_LOOKS = 8  # before the first report
_MAX_S, _MIN_S = 10.0, 0.05
_MAX_GRACE_S = 30.0
"""How long user code that was interrupted, or whose harness was ended, may take to raise."""


class LullWatch:
    """Reports user code that makes no progress, and ends it if it can be ended.

    Threads: one, which is not that of the bundles.

    Args:
        timeout_s: the time without progress after which user code is ended; 0: never.
        thread_name: the name of the thread that runs the bundles.
        interrupt: interrupts user code in that thread, if it is in Python code.
        stages: returns the stages of the task; None: it has none yet.

    Attributes:
        error: the error with which the task is to fail; None: it is not stuck.
        is_final: user code is stuck, and can only be ended with its process.
        check_every_s: how often ``check`` is to be called, in seconds.
    """

    def __init__(
        self,
        timeout_s: float,
        thread_name: str,
        interrupt: Callable[[], None],
        stages: Callable[[], OpenStages | None],
    ) -> None:
        self._lull = Lull(round(timeout_s * 1e6) if timeout_s else None)
        self._thread_name = thread_name
        self._interrupt = interrupt
        self._stages = stages
        self.is_final = False
        self._given_up_s = 0.0
        self._grace_s = min(timeout_s, _MAX_GRACE_S)
        self.error: StuckBundleError | None = None
        self.check_every_s = max(_MIN_S, min(_MAX_S, timeout_s / 2 / _LOOKS or _MAX_S))

    def note_batch(self) -> None:
        """Note that the task has emitted a batch."""
        self._lull.on(None, 0)

    def check(self) -> None:
        """Check whether user code makes progress.

        Raises:
            StuckBundleError: it does not, and could not be ended.
        """
        if self.error is not None:
            if time.monotonic() - self._given_up_s >= self._grace_s:
                self.is_final = True
                raise self.error
            return
        stages = self._stages()
        if stages is None:
            return
        activity, bundle = _at(stages)
        decision = self._lull.on(activity if activity.step else None, time.monotonic_ns() // 1_000)
        match decision:
            case ReportLull(lasted_us):
                _LOGGER.warning(
                    "%s: its code has made no progress for %.0f s. Its stack:\n%s",
                    activity.step,
                    lasted_us / 1e6,
                    self._status(bundle),
                )
            case EndTask(lasted_us):
                self._give_up(activity.step, lasted_us, bundle)

    def describe(self) -> str:
        """Return the step whose code runs now, and its stack. Threads: any."""
        stages = self._stages()
        activity, bundle = (IDLE, None) if stages is None else _at(stages)
        return f"{activity.step or 'no step'}:\n{self._status(bundle)}"

    def _give_up(self, step: str, lasted_us: int, bundle: Bundle | None) -> None:
        stack = self._status(bundle)
        _LOGGER.error("%s: its code is interrupted. Its stack:\n%s", step, stack)
        self.error = StuckBundleError(step, round(lasted_us / 1e6), stack)
        self._given_up_s = time.monotonic()
        if bundle is None or not bundle.give_up(self.error):
            self._interrupt()

    def _status(self, bundle: Bundle | None) -> str:
        return stacks(self._thread_name) if bundle is None else bundle.status()


def _at(stages: OpenStages) -> tuple[Activity, Bundle | None]:
    """Return the joint activity of all stages, and the bundle whose code runs.

    That is the last bundle in which code runs: the others have called it.
    """
    opening = stages.opening
    if opening:
        return Activity(opening), None
    running: Bundle | None = None
    step, progress = IDLE.step, []
    for bundle in stages.bundles():
        activity = bundle.activity()
        progress.append((id(bundle), activity.seen))
        if activity.step:
            step, running = activity.step, bundle
    return Activity(step, tuple(progress)), running
