"""The panes of a key's windows: when each one fires, with which values and ``PaneInfo``.

Sources: ReduceFnRunner and PaneInfoTracker of Beam's Java runners, WindowingStrategy in
beam_runner_api.proto. Beam's Python ``GeneralTriggerDriver`` emits nothing when a window expires,
so that it loses elements that no trigger has fired; here they are in the last pane.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from apache_beam.transforms.window import GlobalWindow, TimestampCombiner
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PaneInfo, PaneInfoTiming, WindowedValue, create

from beam_spark_runner.core.time import MAX_US, whole_milliseconds
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.merging import merged_windows
from beam_spark_runner.semantics.strategy import Strategy
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.semantics.triggers import trigger_of
from beam_spark_runner.semantics.window_states import (
    KeyWindows,
    LastUs,
    ListedValues,
    PaneValues,
    WindowState,
    in_order,
    last_us_of,
)

_LAST_US_IN_PYTHON: int = GlobalWindow().max_timestamp().micros
"""The largest timestamp of a pane: the one that panes have in batch, and on Beam's own runner."""
Load = Callable[[Any], WindowState | None]
"""Loads a stored window into those of its key; returns its state, or None if it is not stored."""


class PaneMachine:
    """Groups the values of one key at a time under any trigger. One thread at a time.

    Args:
        strategy: The windowing strategy of the grouping.
        new_values: Makes an empty store for the values of a window.
        late: Counts the elements that are dropped because their windows have expired.
        last_us: Returns the largest timestamp of a window, in microseconds.

    Attributes:
        merges: Whether windows merge, so that all windows of a key have to be processed together.
    """

    def __init__(
        self,
        strategy: Strategy,
        new_values: Callable[[], PaneValues] = ListedValues,
        late: LateElements | None = None,
        last_us: LastUs = last_us_of,
    ) -> None:
        self._new_values = new_values
        self._last_us = last_us
        self._late = LateElements() if late is None else late
        self._window_fn = strategy.window_fn
        self.merges = strategy.merges
        self._trigger = trigger_of(strategy.trigger)
        self._has_empty_panes = strategy.has_empty_panes
        self._has_last_panes = strategy.has_last_panes
        self._accumulates = strategy.accumulates
        self._lateness_us = strategy.lateness_us
        self._times = TimestampCombiner.get_impl(strategy.timestamp_combiner, strategy.window_fn)
        self._ends_windows = strategy.timestamp_combiner == TimestampCombiner.OUTPUT_AT_EOW

    def add(
        self, windows: KeyWindows, values: Iterable[WindowedValue], now: Instant
    ) -> Iterator[WindowedValue]:
        """Add values, and yield the panes that fire because of them.

        Triggers are evaluated once for each window, after all of its values: all values of a
        bundle are in one pane.

        Args:
            windows: The windows of the key, which are changed.
            values: The values, each in the windows that it was assigned to.
            now: The instant at which they arrive. Values whose windows have expired are dropped.
        """
        yield from self.ask(self.collect(windows, values, now), now)

    def collect(
        self,
        windows: KeyWindows,
        values: Iterable[WindowedValue],
        now: Instant,
        load: Load | None = None,
    ) -> KeyWindows:
        """Add values without firing panes, which ``ask`` does then. See ``add``.

        Unless windows merge, it may be called several times, with some of the values each, before
        ``ask``.

        Args:
            windows: See ``add``.
            values: See ``add``.
            now: See ``add``.
            load: Called for a window with new values that is not in ``windows``. None: no others
                are stored.

        Returns:
            The windows with new values, and their states.
        """
        by_window = self._by_window(values, now)
        if self.merges:
            for window, target in self._merge(windows, by_window, now).items():
                if window in by_window:
                    by_window.setdefault(target, []).extend(by_window.pop(window))
        touched: KeyWindows = {}
        have_none = not windows
        for window, elements in by_window.items():
            state = None if have_none else windows.get(window)
            if state is None and load is not None:
                state = load(window)
            if state is None:
                state = windows[window] = self._new_state(window, now)
            if not state.is_closed:
                self._add(window, state, elements, now)
            if not have_none:
                touched[window] = state
        return dict(windows) if have_none else touched

    def _by_window(
        self, values: Iterable[WindowedValue], now: Instant
    ) -> dict[Any, list[WindowedValue]]:
        """Return values by their windows; drop them from windows that have expired."""
        # Most equal windows are one object; to compute the hash of a window is slow in Beam.
        by_id: dict[int, list[WindowedValue]] = {}
        different: list[tuple[Any, list[WindowedValue]]] = []
        for value in values:
            for window in value.windows:
                elements = by_id.get(id(window))
                if elements is None:
                    by_id[id(window)] = elements = []
                    different.append((window, elements))
                elements.append(value)
        by_window: dict[Any, list[WindowedValue]] = {}
        for window, elements in different:
            if self._is_over(self._last_us(window), now):
                self._late.dropped += len(elements)
            elif (earlier := by_window.setdefault(window, elements)) is not elements:
                earlier += elements
        return by_window

    def _new_state(self, window: Any, now: Instant) -> WindowState:
        last_us = self._last_us(window)
        values = self._new_values()
        return WindowState(last_us, values=values, has_ended=_has_ended(last_us, now))

    def ask(self, touched: KeyWindows, now: Instant) -> Iterator[WindowedValue]:
        """Yield the panes that fire because of values that ``collect`` has added.

        Args:
            touched: The windows with new values, and their states.
            now: The instant at which the values arrived.
        """
        for window, state in touched.items():
            if not state.is_closed:
                yield from self._fire(window, state, now)

    def advance(self, windows: KeyWindows, now: Instant) -> Iterator[WindowedValue]:
        """Advance time, and yield the panes that fire; windows that have expired are removed.

        Args:
            windows: The windows of the key, which are changed.
            now: The instant, not before any earlier one. The first pane after the watermark has
                passed the end of the window is on time; later panes are late.
        """
        for window, state in in_order(windows):
            yield from self.advance_one(windows, window, state, now)

    def advance_one(
        self, windows: KeyWindows, window: Any, state: WindowState, now: Instant
    ) -> Iterator[WindowedValue]:
        """Advance time for one window only, which has the given state. See ``advance``."""
        if self._is_over(state.last_us, now):
            del windows[window]
            state.has_expired = True
        if not state.is_closed:
            yield from self._fire(window, state, now, closes=state.has_expired)

    def due(self, state: WindowState, now: Instant) -> tuple[int, int | None]:
        """Return when ``advance`` is to be called next for a window without new elements.

        Args:
            state: The state of the window.
            now: The instant of the last call of ``advance``.

        Returns:
            Event time; and processing time, if the trigger waits for it. Both in microseconds.
        """
        last_us = state.last_us
        is_open = now.watermark_us <= last_us and not state.is_closed
        event_us = last_us if is_open else last_us + self._lateness_us
        # A part of the trigger whose time has passed may still wait for another part.
        clock_us = None
        if state.trigger.due_us and not state.is_closed:
            later_us = (due_us for due_us in state.trigger.due_us.values() if due_us > now.clock_us)
            clock_us = min(later_us, default=None)
        return min(event_us + 1, MAX_US), clock_us

    def hold_us(self, state: WindowState) -> int | None:
        """Return the hold of the output watermark for a window; None: there is no hold."""
        if state.hold_us is not None:
            return state.hold_us
        is_open = not state.is_closed
        if not state.has_ended and (state.has_news or (is_open and self._has_empty_panes)):
            return state.last_us
        if state.has_news or (is_open and self._has_last_panes):
            # The next pane is empty or has only late elements, and the output watermark may have
            # passed its timestamp. Up to this hold, steps downstream do not drop the pane.
            return min(state.last_us + self._lateness_us, MAX_US)
        return None

    def _is_over(self, last_us: int, now: Instant) -> bool:
        return now.watermark_us >= MAX_US or now.watermark_us > last_us + self._lateness_us

    def _merge(self, windows: KeyWindows, new: Iterable[Any], now: Instant) -> dict[Any, Any]:
        """Merge windows, and return the final merged window of each one that was merged.

        A window without state does not count for the merged window's trigger: an element that
        arrives late in a session does not make it fire on time once more. A closed window does not
        merge any more.
        """
        merges = {window: state for window, state in windows.items() if not state.is_closed}
        becomes = merged_windows(self._window_fn, {**merges, **dict.fromkeys(new)})
        parts: defaultdict[Any, list[Any]] = defaultdict(list)
        for window, target in becomes.items():
            parts[target].append(window)
        for target, sources in parts.items():
            own = merges.get(target)
            merging = [own] if own else []
            merging += [merges[window] for window in sources if window in merges]
            for window in sources:
                if window in merges:
                    del windows[window]
            if merging:
                windows[target] = self._merged_state(target, own, merging, now)
        return becomes

    def _merged_state(
        self, window: Any, own: WindowState | None, merging: list[WindowState], now: Instant
    ) -> WindowState:
        # The counts of fired panes are those of the merged window itself, if it existed before.
        last_us = self._last_us(window)
        state = WindowState(
            last_us,
            values=self._new_values(),
            has_news=any(part.has_news for part in merging),
            panes=own.panes if own else 0,
            later_panes=own.later_panes if own else 0,
            has_ended=_has_ended(last_us, now) and all(part.has_ended for part in merging),
        )
        for part in merging:
            state.values.absorb(part.values)
        self._trigger.merge(
            [part.trigger for part in merging],
            state.trigger,
            now,
            last_us,
        )
        state.is_closed = self._trigger.is_finished(state.trigger)
        if holds := [part.hold_us for part in merging if part.hold_us is not None]:
            state.hold_us = self._merged_us(window, last_us, holds)
        return state

    def _add(
        self, window: Any, state: WindowState, elements: list[WindowedValue], now: Instant
    ) -> None:
        # A hold cannot be set before the watermark, unless there is an earlier hold already.
        held_us = now.watermark_us
        if state.hold_us is not None:
            held_us = min(held_us, state.hold_us)
        last_us = state.last_us
        if self._ends_windows:
            times = [last_us] if last_us >= held_us else []
        else:
            assign = self._times.assign_output_time
            times = [assign(window, element.timestamp).micros for element in elements]
            times = [time_us for time_us in times if time_us >= held_us]
        if state.hold_us is not None:
            times.append(state.hold_us)
        if times:
            state.hold_us = self._merged_us(window, last_us, times)
        for element in elements:
            state.values.append(element.value)
            self._trigger.add(state.trigger, now, last_us)
        state.has_news = True

    def _merged_us(self, window: Any, last_us: int, times_us: list[int]) -> int:
        if self._ends_windows:
            return last_us
        if len(times_us) == 1:
            return times_us[0]
        times = [Timestamp(micros=time_us) for time_us in times_us]
        result: int = self._times.merge(window, times).micros
        return result

    def _fire(
        self,
        window: Any,
        state: WindowState,
        now: Instant,
        *,
        closes: bool = False,
    ) -> Iterator[WindowedValue]:
        """Yield a pane if the trigger fires, or if the window has expired and has new values.

        Args:
            window: The window of the key.
            state: The state of the window.
            now: The instant at which the trigger is evaluated.
            closes: Whether the window has expired.
        """
        last_us = state.last_us
        timing = PaneInfoTiming.EARLY
        if _has_ended(last_us, now):
            timing = PaneInfoTiming.LATE if state.has_ended else PaneInfoTiming.ON_TIME
        fires = self._trigger.should_fire(state.trigger, now, last_us)
        if fires:
            self._trigger.fire(state.trigger, now, last_us)
            state.is_closed = self._trigger.is_finished(state.trigger)
        is_last = state.is_closed or closes
        has_pane = fires and timing == PaneInfoTiming.ON_TIME and self._has_empty_panes
        if has_pane or (self._has_last_panes and is_last) or (state.has_news and (fires or closes)):
            yield self._pane(window, state, timing, is_last=is_last)
        state.has_ended |= timing != PaneInfoTiming.EARLY and not state.has_news

    def _pane(
        self, window: Any, state: WindowState, timing: int, *, is_last: bool
    ) -> WindowedValue:
        index, later = state.panes, state.later_panes
        is_early = timing == PaneInfoTiming.EARLY
        state.panes += 1
        if is_early:
            later = -1
        else:
            state.later_panes += 1
        values = state.values.pane(keeps=self._accumulates and not is_last)
        state.has_news = False
        time_us = state.last_us if state.hold_us is None else state.hold_us
        time_us = min(time_us, _LAST_US_IN_PYTHON)
        state.hold_us = None  # proto OutputTime: only elements since the last pane count
        return create(
            values,
            whole_milliseconds(time_us),
            (window,),
            PaneInfo(index == 0, is_last, timing, index, later),
        )


def _has_ended(last_us: int, now: Instant) -> bool:
    return now.watermark_us > last_us
