"""Running a stage whose root is a splittable DoFn: bundles until nothing is deferred any more.

Each restriction is pushed by itself, so that a bundle can end between two of them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.bundle import Bundle, BundleResult
from beam_spark_runner.harness.checkpoint_handler import (
    SdfKeySelector,
    SdfStateInternals,
    SdfStateInternalsFactory,
    SdfTimerInternalsFactory,
    StateAndTimerBundleCheckpointHandler,
    in_each_window,
)
from beam_spark_runner.state.residuals import InMemoryTimers, InMemoryValues, ResidualTimer


class SplittableInput:
    """The input of one such stage in one task. A ``BundleInput``.

    Threads: the bundle's.

    Args:
        start_bundle: begins a bundle; called for each.
        on_completed: gets what is known of a bundle that has finished, before its residuals
            are scheduled.
        input_coder: of the stage's input.
        collection: the input's name, for errors.
        now_us: processing time, microseconds since the epoch.

    Raises:
        InvalidPipelineError: the input is not made of sized restrictions.
    """

    def __init__(
        self,
        *,
        start_bundle: Callable[[], Bundle],
        on_completed: Callable[[BundleResult], None],
        input_coder: WindowedValueCoder,
        collection: str,
        now_us: Callable[[], int],
    ) -> None:
        self._start_bundle = start_bundle
        self._on_completed = on_completed
        self._timers = InMemoryTimers(now_us)
        self._values = InMemoryValues()
        key_of = SdfKeySelector(input_coder, collection)
        self._handler = StateAndTimerBundleCheckpointHandler(
            SdfTimerInternalsFactory(key_of, self._timers),
            SdfStateInternalsFactory(key_of, self._values),
            input_coder,
            input_coder.window_coder,
        )
        self._ready: deque[WindowedValue] = deque()
        self.bundle: Bundle | None = None

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process sized restrictions, each once in each of its windows.

        Beam's SDK splits a restriction in many windows for all of them while it goes on
        with the later ones, so that those were processed twice.
        """
        for value, origin in zip(values, origins, strict=True):
            self._ready.extend(in_each_window(origin.with_value(value)))
        self._process()

    def flush(self) -> None:
        """See ``BundleInput.flush``: nothing waits."""

    def next_due_us(self) -> int | None:
        """See ``Deferring``."""
        return self._timers.next_due_us()

    def watermark_hold_us(self) -> int:
        """Event time that waits for what is deferred; the end of time if nothing is."""
        return self._timers.watermark_hold_us()

    def run_due(self) -> bool:
        """See ``Deferring``."""
        due = self._timers.pop_due()
        if self.bundle is None and not due:
            return False
        self._ready.extend(map(self._take, due))
        self._process()
        self._finish()
        return True

    def _process(self) -> None:
        if not self._ready:
            return
        if self.bundle is None:
            self.bundle = self._start_bundle()
        self.bundle.enter()
        push = self.bundle.push
        while self._ready:
            element = self._ready.popleft()
            push([element.value], [element])

    def _finish(self) -> None:
        if self.bundle is None:
            return
        result = self.bundle.finish()
        self.bundle = None
        self._on_completed(result)
        if result.residual_roots:
            self._handler.on_checkpoint(result)

    def _take(self, timer: ResidualTimer) -> WindowedValue:
        state = SdfStateInternals(timer.key, self._values)
        element = state.read(timer.window, timer.id)
        state.clear(timer.window, timer.id)
        return element


class Deferring(Protocol):
    """What runs bundles that may leave something for later."""

    def run_due(self) -> bool:
        """Finish the bundle that is open, and run one with what is due now.

        Returns:
            Whether there was anything to do.
        """
        ...

    def next_due_us(self) -> int | None:
        """Processing time at which there will be something to do; None: never again."""
        ...


def run_to_end(
    stages: Sequence[Deferring], now_us: Callable[[], int], wait_us: Callable[[int], None]
) -> None:
    """Run bundles until nothing is pending, residuals of residuals too.

    What was deferred is not processed before its time: it polls the world outside.

    Args:
        stages: of one task, whose input has ended.
        now_us: processing time.
        wait_us: waits for so long, or raises if the task is not wanted any more; asked with 0
            between any two bundles.
    """
    while True:
        # Every stage gets its turn: one that defers for ever must not keep others waiting.
        if any([stage.run_due() for stage in stages]):
            wait_us(0)
            continue
        due = [at_us for stage in stages if (at_us := stage.next_due_us()) is not None]
        if not due:
            return
        wait_us(max(0, min(due) - now_us()))
