"""Runs a stage with a splittable DoFn at the root: bundles until no residual remains.

Each restriction is pushed by itself, so that a bundle can end between two of them.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.harness.bundle import Bundle, BundleResult, Residual
from beam_spark_runner.harness.sdf.checkpoint_handler import (
    SdfKeySelector,
    SdfStateInternals,
    SdfStateInternalsFactory,
    SdfTimerInternalsFactory,
    StateAndTimerBundleCheckpointHandler,
    in_each_window,
)
from beam_spark_runner.harness.sdf.restriction_input import RestrictionInput
from beam_spark_runner.harness.sdf.timed_split import TimedSplit
from beam_spark_runner.scheduling.rounds import may_leave_work
from beam_spark_runner.state.residuals import InMemoryTimers, InMemoryValues, ResidualTimer

_MAX_GATHERED = 1_000
_LARGE = 4 << 20  # the size of a restriction, from the SDK: mostly bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The time for which a task processes restrictions before it leaves the rest to a round.

    Attributes:
        duration_us: The time for processing, and for waiting until residuals are due.
        pieces: The number of pieces into which the rest of the current restriction is cut.
        leave: Takes each sized restriction that is left, its due processing time (0: due now),
            and its watermark hold in event time, both in microseconds.
        leaves_much: Several restrictions, or a large one, are left at once: other tasks can process
            them meanwhile.
        longest_us: The time after which a task with many restrictions of similar sizes leaves the
            rest, too; its current restriction is not cut into pieces. None: there is no limit.
    """

    duration_us: int
    pieces: int
    leave: Callable[[WindowedValue, int, int], None]
    leaves_much: bool = False
    longest_us: int | None = None


class SplittableInput(RestrictionInput):
    """The input of a stage with a splittable DoFn in one task. A ``BundleInput``.

    Threads: the bundle's.

    Args:
        start_bundle: Begins a bundle.
        on_completed: Gets the result of each finished bundle, before its residuals are
            scheduled.
        input_coder: The coder of the stage's input.
        collection: The input's name, for errors.
        now_us: Processing time, in microseconds since the Unix epoch.
        budget: Limits the time of the task; None: it processes all restrictions.

    Raises:
        InvalidPipelineError: The input is not made of sized restrictions.
    """

    def __init__(
        self,
        *,
        start_bundle: Callable[[], Bundle],
        on_completed: Callable[[BundleResult], None],
        input_coder: WindowedValueCoder,
        collection: str,
        now_us: Callable[[], int],
        budget: Budget | None = None,
    ) -> None:
        self._now_us = now_us
        self._budget = budget
        self._gathers = budget is not None  # all restrictions decide whether any may be left
        self._ends_us: int | None = None  # when the budget is spent
        self._timers = InMemoryTimers(now_us)
        self._values = InMemoryValues()
        key_of = SdfKeySelector(input_coder, collection)
        handler = StateAndTimerBundleCheckpointHandler(
            SdfTimerInternalsFactory(key_of, self._timers),
            SdfStateInternalsFactory(key_of, self._values),
            input_coder,
            input_coder.window_coder,
        )
        super().__init__(start_bundle, on_completed, handler)
        self._ready: deque[WindowedValue] = deque()

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Process sized restrictions, each once in each of its windows.

        Each window is pushed separately: Beam's SDK would split a restriction for all of its
        windows, but continue with the later ones, which would be processed twice.
        """
        for value, origin in zip(values, origins, strict=True):
            self._ready.extend(in_each_window(origin.with_value(value)))
        leaves_much = self._budget is not None and self._budget.leaves_much
        if self._gathers and len(self._ready) > _MAX_GATHERED and not leaves_much:
            self._gathers = False
            self._begin(is_skewed=False)
        if self._gathers:
            return
        if self._is_over():
            self._leave()
        else:
            self._process()

    def push_later(self, element: WindowedValue, due_us: int) -> None:
        """Process a sized restriction that was deferred elsewhere, not before its time."""
        self._handler.schedule(Residual(element, due_us - self._now_us(), MIN_US))

    def pending(self) -> int:
        """Return the number of restrictions that are deferred or not begun."""
        return len(self._timers) + len(self._ready)

    def watermark_hold_us(self) -> int:
        """Return the event time at which they hold the watermark; the maximum if none are left."""
        return MIN_US if self._ready else self._timers.watermark_hold_us()

    def next_due_us(self) -> int | None:
        """See ``Deferring``."""
        due_us = self._timers.next_due_us()
        if due_us is None or self._ends_us is None:
            return due_us
        return min(due_us, self._ends_us)

    def run_due(self) -> bool:
        """See ``Deferring``."""
        if self._gathers:
            self._gathers = False
            if self._leaves_at_once():
                self._leave()
                return True
            self._begin(
                is_skewed=may_leave_work([float(element.value[1]) for element in self._ready])
            )
        elif self._is_over() and len(self._timers):
            self._leave()
            return True
        self._ready.extend(map(self._take, self._timers.pop_due()))
        if self._bundle is None and not self._ready:
            return False
        self._process()
        self._finish()
        if self._is_over():
            self._leave()
        return True

    def _leaves_at_once(self) -> bool:
        if self._budget is None or not self._budget.leaves_much:
            return False
        return self.pending() > 1 or any(element.value[1] > _LARGE for element in self._ready)

    def _begin(self, *, is_skewed: bool) -> None:
        budget = self._budget
        if budget is None:
            return
        if is_skewed:
            self._ends_us = self._now_us() + budget.duration_us
        elif budget.longest_us is not None:
            self._budget = replace(budget, pieces=1)
            self._ends_us = self._now_us() + budget.longest_us
        else:
            self._budget = None

    def _is_over(self) -> bool:
        return self._ends_us is not None and self._now_us() >= self._ends_us

    def _process(self) -> None:
        """Push the elements that are ready; at least one, even if the time is over."""
        if not self._ready:
            return
        is_new = self._bundle is None
        if self._bundle is None:
            self._bundle = self._start_bundle()
        self._bundle.enter()
        push = self._bundle.push
        if self._budget is None or self._ends_us is None:
            while self._ready:
                element = self._ready.popleft()
                push([element.value], [element])
            return
        if is_new:
            left_s = (self._ends_us - self._now_us()) / 1e6
            self._checkpoint = TimedSplit(self._bundle, max(0.0, left_s), self._budget.pieces)
        while self._ready:
            element = self._ready.popleft()
            push([element.value], [element])
            if self._is_over():
                break

    def _leave(self) -> None:
        """Leave all restrictions that have not been processed, due or not."""
        assert self._budget is not None
        now_us = self._now_us()
        while self._ready:
            self._budget.leave(self._ready.popleft(), 0, MIN_US)
        for timer in self._timers.pop_all():
            due_us = timer.fire_at_us if timer.fire_at_us > now_us else 0
            self._budget.leave(self._take(timer), due_us, timer.hold_us)

    def _take(self, timer: ResidualTimer) -> WindowedValue:
        state = SdfStateInternals(timer.key, self._values)
        element = state.read(timer.window, timer.id)
        state.clear(timer.window, timer.id)
        return element


class Deferring(Protocol):
    """A stage whose bundles may defer residuals."""

    def run_due(self) -> bool:
        """Finish the open bundle, and run one with the residuals that are due now.

        Returns:
            Whether there was anything to do.
        """
        ...

    def next_due_us(self) -> int | None:
        """Return the processing time at which ``run_due`` is to be called next; None: never."""
        ...


def run_to_end(
    stages: Sequence[Deferring], now_us: Callable[[], int], wait_us: Callable[[int], None]
) -> None:
    """Run bundles until no residual remains.

    A residual is not processed before it is due, since it may poll an external system.

    Args:
        stages: The stages of one task whose input has ended.
        now_us: Processing time, in microseconds since the Unix epoch.
        wait_us: Waits for a number of microseconds, or raises if the task's output is no longer
            needed. Called with 0 between any two bundles.
    """
    while True:
        # Every stage gets its turn: one that defers forever must not keep others waiting.
        if any([stage.run_due() for stage in stages]):
            wait_us(0)
            continue
        due = [at_us for stage in stages if (at_us := stage.next_due_us()) is not None]
        if not due:
            return
        wait_us(max(0, min(due) - now_us()))
