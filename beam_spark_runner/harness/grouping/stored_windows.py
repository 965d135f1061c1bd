"""Stores the windows of a grouping between epochs, each as a separate record."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from beam_spark_runner._generated.store_pb2 import PaneState
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.codec.windowed import KnownWindows
from beam_spark_runner.harness.grouping.stored_panes import GROUPING, PaneBags, StoredPaneValues
from beam_spark_runner.semantics.panes import PaneMachine
from beam_spark_runner.semantics.timers import Domain, Instant
from beam_spark_runner.semantics.trigger_machines import TriggerState
from beam_spark_runner.semantics.window_states import KeyWindows, WindowState, in_order
from beam_spark_runner.state.backend import Bag, Cell, StoredTimer
from beam_spark_runner.state.store import StoredState

_FAMILY = "\0window"  # no step has such a timer
_ON_CLOCK = "clock"


class LoadedWindow(NamedTuple):
    """A window as it was when it was loaded.

    Attributes:
        state: The loaded object, which the pane machine may have changed or replaced since.
        coded: Its encoding in the store.
        hold_us: The hold of the window's timer in the store; None: its trigger waits for a clock,
            so that the timers must be written again.
    """

    state: WindowState
    coded: bytes
    hold_us: int | None


class StoredWindows:
    """The windows of one key at a time, loaded as far as they are needed.

    Each window has a cell in the store, and a timer for when it is due, with the window's watermark
    hold. The owner of the timer is the window, so that each of very many windows of a key
    becomes due without the others. The values are in the cell if they are few and small; else they
    are in separate bags.

    A window that is saved has been advanced to this epoch's time. One that is not saved remains in
    the store unchanged, due at the same time as before.

    Args:
        store: The stage's records in the shard.
        bags: The values in the store.
        machine: The pane machine that changes the windows.
        known: The encodings of windows.
        now: Time of this epoch, to which windows advance.

    Attributes:
        windows: The loaded windows of the key.
        loaded_bytes: The encoded size of their values when they were loaded.
    """

    def __init__(
        self,
        store: StoredState,
        bags: PaneBags,
        machine: PaneMachine,
        known_windows: KnownWindows,
        now: Instant,
    ) -> None:
        self._store, self._bags, self._machine, self._now = store, bags, machine, now
        self._known_windows = known_windows
        self._key = b""
        self._visited: dict[Any, LoadedWindow] = {}
        self._used_bags: set[bytes] = set()  # bags that windows have had since ``begin``
        self.windows: KeyWindows = {}
        self.loaded_bytes = 0

    def begin(self, key: bytes) -> None:
        """Begin a key: forget the windows of the previous one.

        Args:
            key: The key, encoded, nested.
        """
        self._key = self._bags.key = key
        self._visited, self._used_bags = {}, set()
        self.windows = {}
        self.loaded_bytes = 0

    def load(self, window: Any) -> WindowState | None:
        """Load a window that is not loaded; return its state, or None if it is not stored."""
        coded = self._store.whole(Bag(_cell(self._known_windows.entry_of(window).coded, self._key)))
        if not coded:
            return None
        state = self.windows[window] = self._state_of(window, coded)
        return state

    def load_all(self) -> None:
        """Load all windows of the key. None of them may be loaded already."""
        timers = self._store.timers_of_key(_FAMILY, self._key)
        for coded in {timer.window for timer in timers}:
            self.load(self._known_windows.decode(coded))

    def due(self, owner: str | None) -> list[tuple[Any, bool]]:
        """Return the windows of the key that are due, in the order of their ends.

        Args:
            owner: The owner of the only timers to check; None: those of all windows.

        Returns:
            Each window, and whether it is due in processing time, so that it is not interrupted.
        """
        if owner is None:
            timers = self._store.timers_of_key(_FAMILY, self._key)
        else:
            timers = self._store.timers(owner, self._key)
        due: dict[bytes, bool] = {}
        for timer in timers:
            is_event = timer.domain is Domain.EVENT_TIME
            if timer.fires_us <= (self._now.watermark_us if is_event else self._now.clock_us):
                due[timer.window] = due.get(timer.window, False) or not is_event
        windows = [
            (self._known_windows.decode(coded), has_clock) for coded, has_clock in due.items()
        ]
        return sorted(windows, key=lambda entry: self._known_windows.last_us(entry[0]))

    def least_hold(self) -> int:
        """Return the least hold of the key's windows, in event time; the maximum if none hold."""
        timers = self._store.timers_of_key(_FAMILY, self._key)
        return min((timer.hold_us for timer in timers), default=MAX_US)

    def store_values(self, windows: Iterable[Any]) -> None:
        """Move the new values of some windows to the store, to free memory for further ones."""
        for window in windows:
            values = self.windows[window].values
            assert isinstance(values, StoredPaneValues)
            self._bags.save(values)
            self._used_bags.update(values.bags)

    def changed(self, touched: KeyWindows) -> list[tuple[Any, WindowState]]:
        """Return the windows to pass to ``save``, in the order of their ends.

        Args:
            touched: The windows that have got elements. Merged windows are found in addition.
        """
        if not self._machine.merges:
            return in_order(touched)
        return in_order(
            {
                window: state
                for window, state in self.windows.items()
                if window in touched
                or window not in self._visited
                or self._visited[window].state is not state
            }
        )

    def save(self, windows: Iterable[tuple[Any, WindowState]]) -> None:
        """Store windows that have been advanced, and remove those that have expired or merged."""
        for window, state in windows:
            if not state.has_expired:
                self._save(window, state)
        if self._used_bags:
            self._clear_unused_bags()
        for window in self._visited:
            if window not in self.windows:
                coded_window = self._known_windows.entry_of(window).coded
                self._store.clear(Bag(_cell(coded_window, self._key)))
                self._store.set_timers(_owner(coded_window), self._key, ())

    def _clear_unused_bags(self) -> None:
        bags_in_use: set[bytes] = set()
        for state in self.windows.values():
            assert isinstance(state.values, StoredPaneValues)
            bags_in_use.update(state.values.bags)
        for bag in self._used_bags - bags_in_use:
            self._bags.clear(bag)

    def _save(self, window: Any, state: WindowState) -> None:
        assert isinstance(state.values, StoredPaneValues)
        self._bags.save(state.values)
        coded_window = self._known_windows.entry_of(window).coded
        visited = self._visited.get(window) if self._visited else None
        coded = _encoded(state)
        if visited is None or visited.coded != coded:
            bag = Bag(_cell(coded_window, self._key))
            self._store.replace(bag, coded, is_new=visited is None)
        hold_us = self._hold_us(state)
        if visited is not None and visited.hold_us == hold_us and self._is_as_open_as_it_was(state):
            return
        event_us, clock_us = self._machine.due(state, self._now)
        timers = [StoredTimer(_FAMILY, "", coded_window, Domain.EVENT_TIME, event_us, hold_us, b"")]
        if clock_us is not None:
            domain = Domain.PROCESSING_TIME
            timers.append(
                StoredTimer(_FAMILY, _ON_CLOCK, coded_window, domain, clock_us, MAX_US, b"")
            )
        set_timers = self._store.add_timers if visited is None else self._store.set_timers
        set_timers(_owner(coded_window), self._key, timers)

    def write(self, key: bytes, coded_window: bytes, state: WindowState) -> None:
        """Write the cell of a window, without its bags and timers.

        Args:
            key: The key, encoded, nested.
            coded_window: The window, encoded.
            state: The state of the window, whose values have been saved.
        """
        self._store.replace(Bag(_cell(coded_window, key)), _encoded(state))

    def _hold_us(self, state: WindowState) -> int:
        hold_us = self._machine.hold_us(state)
        return MAX_US if hold_us is None else hold_us

    def _is_as_open_as_it_was(self, state: WindowState) -> bool:
        """Whether a window's only timer is still the one for its end."""
        return (
            not state.trigger.due_us
            and not state.is_closed
            and self._now.watermark_us <= state.last_us
        )

    def _state_of(self, window: Any, coded: bytes) -> WindowState:
        proto = PaneState.FromString(coded[1:])
        values = self._bags.new_values(proto)
        self._used_bags.update(values.bags)
        self.loaded_bytes += values.stored_bytes
        state = WindowState(
            self._known_windows.last_us(window),
            trigger=TriggerState(set(proto.finished), dict(proto.counts), dict(proto.due_us)),
            values=values,
            has_news=proto.has_news,
            hold_us=proto.hold_us if proto.HasField("hold_us") else None,
            panes=proto.panes,
            later_panes=proto.later_panes,
            is_closed=proto.is_closed,
            has_ended=proto.has_ended,
        )
        hold_us = None if state.trigger.due_us else self._hold_us(state)
        self._visited[window] = LoadedWindow(state, coded, hold_us)
        return state


def _owner(coded_window: bytes) -> str:
    return "window " + coded_window.hex()  # no transform has such an id


def _encoded(state: WindowState) -> bytes:
    trigger, values = state.trigger, state.values
    assert isinstance(values, StoredPaneValues)
    proto = PaneState(
        finished=sorted(trigger.finished),
        counts=trigger.counts,
        due_us=trigger.due_us,
        has_news=state.has_news,
        hold_us=state.hold_us,
        panes=state.panes,
        later_panes=state.later_panes,
        is_closed=state.is_closed,
        has_ended=state.has_ended,
        inline=values.inline,
        bags=values.bags,
        stored=values.stored_count,
        stored_bytes=values.stored_bytes,
        merged_bytes=values.merged_bytes,
    )
    # An empty message would be an empty bag, which is the same as a missing one.
    return b"\0" + proto.SerializeToString(deterministic=True)


def _cell(window: bytes, key: bytes) -> Cell:
    return Cell(GROUPING, "panes", window, key)
