"""The state sampler of a stage, from bundle to bundle."""

import threading

from apache_beam.runners.worker import statesampler

_GOES_ON_S = 0.05


def running_transform() -> str:
    """Return the id of the transform whose code this thread runs now; empty if none."""
    tracker = statesampler.get_current_tracker()
    state = tracker.current_state() if tracker is not None else None
    context = state.name_context if state is not None else None
    return getattr(context, "transform_id", None) or ""


class Sampling:
    """Lets a stage's sampler run while bundles do.

    Its thread cannot be woken, and sleeps for up to 200 ms: to wait for its end between any
    two bundles would take longer than many bundles do. So it ends without anybody waiting,
    and it does not end if the next bundle begins soon.

    Threads: the bundle's.
    """

    def __init__(self, sampler: statesampler.StateSampler) -> None:
        self._sampler = sampler
        self._is_running = False
        self._ending: threading.Thread | None = None
        self._goes_on = threading.Event()

    def prepare(self) -> None:
        """Another bundle comes: the sampler may be reset and started."""
        if self._ending is not None:
            self._goes_on.set()
            self._ending.join()
            self._ending = None

    def start(self) -> None:
        """See ``StateSampler.start``; called after ``prepare`` and a reset."""
        if not self._is_running:
            self._sampler.start()
            self._is_running = True
            return
        self._sampler.tracked_thread = threading.current_thread()
        statesampler.set_current_tracker(self._sampler)
        self._sampler.started = True

    def end(self) -> None:
        """The bundle has ended. Does not wait."""
        statesampler.set_current_tracker(None)
        if self._ending is not None or not self._is_running:
            return  # aborted after its end, or before its start
        self._goes_on.clear()
        self._ending = threading.Thread(target=self._stop, name="beam-sampler-end", daemon=True)
        self._ending.start()

    def _stop(self) -> None:
        if not self._goes_on.wait(_GOES_ON_S):
            self._is_running = False
            self._sampler.stop_if_still_running()
