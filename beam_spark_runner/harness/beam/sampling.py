"""The state sampler of a stage, from bundle to bundle."""

import threading
import time

from apache_beam.runners.worker import statesampler

_LINGERS_S = 1.0  # longer than the pause between epochs


def running_transform() -> str:
    """Return the id of the transform whose code this thread runs now; empty if none."""
    tracker = statesampler.get_current_tracker()
    state = tracker.current_state() if tracker is not None else None
    context = state.name_context if state is not None else None
    return getattr(context, "transform_id", None) or ""


class Sampling:
    """Runs the state sampler of a stage during bundles, and for a while after each one.

    The sampler's thread cannot be woken, and sleeps for up to 200 ms. To wait for its end
    between two bundles would take longer than many bundles do. So it runs on until no bundle has
    begun for ``_LINGERS_S``; then a watching thread stops it.

    Threads: the bundle's.
    """

    def __init__(self, sampler: statesampler.StateSampler) -> None:
        self._sampler = sampler
        self._changed = threading.Condition()
        self._is_running = False  # whether the sampler's thread runs
        self._in_bundle = False
        self._ended_s = 0.0  # monotonic time at which the last bundle ended
        self._watching: threading.Thread | None = None  # exists until it has stopped the sampler
        self._is_stopping = False

    def prepare(self) -> None:
        """Begin a bundle: afterwards, the sampler may be reset and started."""
        with self._changed:
            self._in_bundle = True
            stopping = self._watching if self._is_stopping else None
        if stopping is not None:
            stopping.join()

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
        """End the bundle. Does not wait for the sampler."""
        statesampler.set_current_tracker(None)
        with self._changed:
            self._in_bundle = False
            self._ended_s = time.monotonic()
            if self._watching is None and self._is_running:
                self._watching = threading.Thread(
                    target=self._stop_when_idle, name="beam-sampler-end", daemon=True
                )
                self._watching.start()

    def _stop_when_idle(self) -> None:
        with self._changed:
            # Beam's sampler deadlocks if one thread stops it while another one resets it.
            while self._in_bundle or self._rest_s() > 0:
                self._changed.wait(self._rest_s())
            self._is_stopping = True
        self._sampler.stop_if_still_running()
        with self._changed:
            self._is_running = self._is_stopping = False
            self._watching = None

    def _rest_s(self) -> float:
        """Return the time in seconds for which the sampler still runs at least."""
        if self._in_bundle:
            return _LINGERS_S
        return self._ended_s + _LINGERS_S - time.monotonic()
