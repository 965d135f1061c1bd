"""Runs a stage with a splittable DoFn at the root for one epoch, and stores the residuals."""

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.bundle import Bundle, BundleResult, Residual
from beam_spark_runner.harness.sdf.checkpoint_handler import (
    SdfKeySelector,
    SdfStateInternals,
    SdfStateInternalsFactory,
    SdfTimerInternalsFactory,
    StateAndTimerBundleCheckpointHandler,
)
from beam_spark_runner.harness.sdf.restriction_input import RestrictionInput
from beam_spark_runner.harness.sdf.timed_split import TimedSplit
from beam_spark_runner.semantics.lateness import waiting_hold_us
from beam_spark_runner.state.residuals import ResidualTimer
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.stored_residuals import StoredKeyedValues, StoredTimers

Truncate = Callable[[Sequence[WindowedValue]], list[WindowedValue]]
"""Truncates sized restrictions by their provider; leaves out those that it drops."""

_MAX_AT_ONCE = 64
_MIN_SLICE_US = 20_000
_MAX_SLICE_US = 30_000_000


class EpochRestrictions(RestrictionInput):
    """The input of a stage with a splittable DoFn in one task of an epoch. A ``BundleInput``.

    All restrictions are stored first. Those that are due are then processed, in the order of
    their due times. Each gets a slice of the budget, after which its residual is stored again,
    like the residuals that it has deferred itself.

    User code may need longer than a slice before its first claim, to open a connection for
    instance. If it were cut off each time, it would never make progress. So a restriction that
    comes back without a claim gets twice the time that it took, alone in its bundle, even beyond
    the budget. This time is halved after each run that has claimed something.

    When the pipeline is drained, each restriction is truncated once, before it is processed, and
    even if it is not due.

    Threads: the bundle's.

    Args:
        store: The stage's records in the shard.
        start_bundle: Begins a bundle.
        on_completed: Gets the result of each finished bundle, before its residuals are
            scheduled.
        input_coder: The coder of the stage's input.
        collection: The input's name, for errors.
        now_us: Processing time, in microseconds since the Unix epoch.
        spent_us: The time for which the task has run, in microseconds.
        budget_us: The time for which the task processes restrictions. One runs in any case.
        idle_us: The delay of a restriction of which a bundle has claimed nothing, if it asks
            for no delay itself.
        truncate: Truncates restrictions; None unless the pipeline is drained.

    Attributes:
        was_cut_off: Whether restrictions that were due remain, since the budget was spent.

    Raises:
        InvalidPipelineError: The input is not made of sized restrictions.
    """

    def __init__(
        self,
        *,
        store: StoredState,
        start_bundle: Callable[[], Bundle],
        on_completed: Callable[[BundleResult], None],
        input_coder: WindowedValueCoder,
        collection: str,
        now_us: Callable[[], int],
        spent_us: Callable[[], int],
        budget_us: int,
        idle_us: int,
        truncate: Truncate | None = None,
    ) -> None:
        self.was_cut_off = False
        self._spent_us = spent_us
        self._budget_us = budget_us
        self._idle_us = idle_us
        self._truncate = truncate
        self._timers = StoredTimers(store, now_us, drains=truncate is not None)
        self._values = StoredKeyedValues(store, input_coder)
        self._first_restrictions: set[tuple[bytes, bytes]] = set()  # what the bundle began with
        self._began_us = 0  # time spent when the bundle began
        self._slice_us = self._least_us = 0  # the bundle's slice; the least slice of its first one
        self._key_of = key_of = SdfKeySelector(input_coder, collection)
        sized = input_coder.wrapped_value_coder
        self._encode = sized.key_coder().value_coder().key_coder().get_impl().encode
        handler = StateAndTimerBundleCheckpointHandler(
            SdfTimerInternalsFactory(key_of, self._timers),
            SdfStateInternalsFactory(key_of, self._values),
            input_coder,
            input_coder.window_coder,
            adjust=self._adjusted,
        )
        super().__init__(start_bundle, on_completed, handler)

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Store sized restrictions, due now; see ``waiting_hold_us``."""
        self._timers.truncated, self._timers.slice_us = False, 0
        for value, origin in zip(values, origins, strict=True):
            self._handler.schedule(Residual(origin.with_value(value), 0, waiting_hold_us(origin)))

    def run_due(self) -> None:
        """Process restrictions that are due and their residuals, until the budget is spent."""
        self._timers.truncated = self._truncate is not None
        self._run_all()
        self._first_restrictions.clear()  # restrictions that are pushed from now on are new

    def _run_all(self) -> None:
        while due := list(itertools.islice(self._timers.due(), _MAX_AT_ONCE)):
            queue = deque(self._without_truncating(due))
            while queue:
                self._run(queue)
                if self._left_us() <= 0:
                    self.was_cut_off = next(self._timers.due(), None) is not None
                    return

    def _without_truncating(self, due: list[ResidualTimer]) -> list[ResidualTimer]:
        """Truncate restrictions that were not, and store them, due now. Return the others."""
        if self._truncate is None:
            return due
        whole = [timer for timer in due if not timer.was_truncated]
        if whole:
            # The answer does not show which restrictions were dropped: all get the least hold.
            hold_us = min(timer.hold_us for timer in whole)
            self._timers.slice_us = 0
            self._first_restrictions.clear()  # no bundle has begun with what comes now
            for restriction in self._truncate([self._take(timer) for timer in whole]):
                self._handler.schedule(Residual(restriction, 0, hold_us))
        return [timer for timer in due if timer.was_truncated]

    def _run(self, queue: deque[ResidualTimer]) -> None:
        """Run a bundle over at least one restriction, and more for a slice of the budget."""
        first = queue[0]
        slice_us = max(_MIN_SLICE_US, first.slice_us, self._left_us() // len(queue))
        self._began_us, self._slice_us, self._least_us = self._spent_us(), slice_us, first.slice_us
        self._bundle = self._start_bundle()
        self._bundle.enter()
        self._first_restrictions.clear()
        self._checkpoint = TimedSplit(self._bundle, slice_us / 1e6, pieces=1)
        while queue:
            element = self._take(queue.popleft())
            self._first_restrictions.add(self._restriction_of(element))
            self._bundle.push([element.value], [element])
            is_over = self._spent_us() >= self._began_us + slice_us
            if is_over or first.slice_us or (queue and queue[0].slice_us):
                break
        self._finish()

    def _adjusted(self, residual: Residual) -> Residual:
        """Delay a restriction that was processed without a claim, so that it does not spin."""
        if not self._first_restrictions:
            return residual
        is_unclaimed = self._restriction_of(residual.element) in self._first_restrictions
        took_us = self._spent_us() - self._began_us  # until the bundle finished
        if is_unclaimed and took_us >= self._slice_us:
            self._timers.slice_us = min(2 * took_us, _MAX_SLICE_US)
        else:
            half_us = self._least_us // 2
            self._timers.slice_us = half_us if half_us > _MIN_SLICE_US else 0
        if is_unclaimed and not residual.delay_us:
            return residual._replace(delay_us=self._idle_us)
        return residual

    def _restriction_of(self, element: WindowedValue) -> tuple[bytes, bytes]:
        """Return an element and its restriction, encoded.

        They are the same as before if nothing was claimed. The state of the watermark estimator and
        the size may differ: both may depend on a clock, or on a server.
        """
        return self._key_of(element), self._encode(element.value[0][1][0])

    def _left_us(self) -> int:
        return self._budget_us - self._spent_us()

    def _take(self, timer: ResidualTimer) -> WindowedValue:
        self._timers.remove(timer)
        state = SdfStateInternals(timer.key, self._values)
        element = state.read(timer.window, timer.id)
        state.clear(timer.window, timer.id)
        return element
