"""GroupByKey in epochs: the windows of a key are stored until their triggers fire."""

import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.user_calls import map_all
from beam_spark_runner.harness.bundle import StoringInput
from beam_spark_runner.harness.codec.windowed import KnownWindows, windowed_decoder
from beam_spark_runner.harness.grouping.grouping_operator import GroupByKey, GroupByKeySpec, charged
from beam_spark_runner.harness.grouping.long_windows import (
    LongWindow,
    LongWindows,
    MergeAccumulators,
)
from beam_spark_runner.harness.grouping.sdk_window_fn import MergeWindows, strategy_for
from beam_spark_runner.harness.grouping.stored_panes import PaneBags, StoredPane, StoredPaneValues
from beam_spark_runner.harness.grouping.stored_windows import StoredWindows
from beam_spark_runner.harness.values.spilled_group import ValueLog, ValueLogs
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.panes import Load, PaneMachine
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.semantics.window_states import KeyWindows, WindowState
from beam_spark_runner.state.store import StoredState

_PIECE_BYTES = 8 << 20
_WAITING_BYTES = 1 << 20  # of panes


class GroupsInEpochs(GroupByKey):
    """Pushes the panes that fire in an epoch, and stores the windows that remain open.

    A window that gets elements fires at once if it is due. The others fire when ``fire`` is
    called for them, one by one, so that very many windows of one key need not fire in one epoch.

    Args:
        grouping: The GroupByKey in the plan.
        coder: The coder of the elements KV<key, values>.
        bundle: Takes the elements.
        logs: The value logs of the task.
        store: The stage's records in the shard.
        before: Time of the previous epoch, by whose watermark elements are late.
        now: Time of this epoch, to which windows advance.
        late: Counts the elements that are dropped.
        merge: Merges accumulators, so that long windows stay small; None: the values are no
            accumulators.
        interruption: Counts each window that has fired, and decides when others that are due
            remain; None: all fire.
        merge_windows: See ``strategy_for``.
    """

    def __init__(
        self,
        grouping: GroupByKeySpec,
        coder: WindowedValueCoder,
        bundle: StoringInput,
        logs: ValueLogs,
        *,
        store: StoredState,
        before: Instant,
        now: Instant,
        late: LateElements,
        merge: MergeAccumulators | None = None,
        interruption: Interruption | None = None,
        merge_windows: MergeWindows | None = None,
    ) -> None:
        super().__init__(grouping, coder, bundle, logs)
        self._input = bundle
        self._name = grouping.name
        self._before, self._now = before, now
        self._interruption = interruption
        element_coder = coder.wrapped_value_coder
        value_coder = element_coder.value_coder().value_coder()
        self._decode_key = element_coder.key_coder().get_impl().decode_nested
        self._decode_windowed = windowed_decoder(value_coder, coder.window_coder)
        self._known_windows = KnownWindows(coder.window_coder)
        bags = PaneBags(store, value_coder)
        strategy = strategy_for(grouping, coder.window_coder, merge_windows)
        self._machine = PaneMachine(strategy, bags.new_values, late, self._known_windows.last_us)
        self._stored_windows = StoredWindows(store, bags, self._machine, self._known_windows, now)
        self._long = None if merge is None else LongWindows(self._stored_windows, bags, merge)
        self._waiting_bytes = 0  # upper bound for the panes that are buffered

    @override
    def group(self, key: bytes, values: list[bytes], order: int) -> None:
        """The key is nested."""
        self._waiting_bytes += sum(map(len, values))
        self._add(key, [map_all(self._decode_windowed, values)])

    @override
    def stream(self, key: bytes, order: int, log: ValueLog, source: Iterable[bytes] = ()) -> None:
        """The key is nested."""
        self._waiting_bytes = _WAITING_BYTES
        self._add(key, self._pieces(itertools.chain(log, source)))
        log.close()

    def _pieces(self, coded: Iterable[bytes]) -> Iterator[list[WindowedValue]]:
        """Yield the values a few megabytes at a time; all at once if windows merge."""
        piece: list[WindowedValue] = []
        room = _PIECE_BYTES
        for value in coded:
            piece.append(self._decode_windowed(value))
            room -= len(value)
            if room <= 0 and not self._machine.merges:
                yield piece
                piece, room = [], _PIECE_BYTES
        yield piece

    def fire(self, owner: str, key: bytes) -> None:
        """Push the panes of a key's windows that are due, and advance the key.

        Args:
            owner: The owner of the timer that is due: a window, see ``StoredWindows``, or the
                transform of a stateful step.
            key: The key, encoded, nested.
        """
        decoded_key = self._begin(key)
        # A stateful step advances once, with all windows of its key.
        due = self._stored_windows.due(None if self._is_keyed else owner)
        for place, (window, waits_for_clock) in enumerate(due):
            # The caller has checked the interruption for the first window.
            if place and not waits_for_clock and self._is_interrupted():
                continue
            self._stored_windows.begin(key)
            state = self._stored_windows.load(window)
            if state is None:
                raise InvariantError(f"{window} is due, but not stored")
            self._advance(decoded_key, key, [(window, state)])
            if self._interruption is not None and not waits_for_clock:
                self._interruption.fired()
        self._end(key)

    def _is_interrupted(self) -> bool:
        if self._interruption is None or not self._interruption.is_over():
            return False
        self._interruption.was_interrupted = True
        return True

    def _begin(self, coded_key: bytes) -> Any:
        if self._long is not None and coded_key in self._long:
            self._long.merge()
        self._stored_windows.begin(coded_key)
        return self._decode_key(coded_key)

    def _add(self, coded_key: bytes, pieces: Iterable[list[WindowedValue]]) -> None:
        key = self._begin(coded_key)
        stored_windows, machine = self._stored_windows, self._machine
        load: Load | None = stored_windows.load
        if machine.merges:
            stored_windows.load_all()
            load = None
        touched: KeyWindows = {}
        last: KeyWindows = {}
        for piece in pieces:
            stored_windows.store_values(last)
            last = machine.collect(stored_windows.windows, piece, self._before, load)
            touched.update(last)
        self._push_panes(key, machine.ask(touched, self._before))
        self._advance(key, coded_key, stored_windows.changed(touched))
        self._end(coded_key)

    def _advance(
        self, key: object, coded_key: bytes, windows: list[tuple[Any, WindowState]]
    ) -> None:
        """Advance some loaded windows to the time of this epoch, push their panes, save them."""
        stored_windows = self._stored_windows
        for window, state in windows:
            panes = self._machine.advance_one(stored_windows.windows, window, state, self._now)
            self._push_panes(key, panes)
        self._waiting_bytes += stored_windows.loaded_bytes
        if self._waiting_bytes >= _WAITING_BYTES:
            self.push()
        stored_windows.save(windows)
        if self._long is not None:
            self._long.add(
                LongWindow(
                    key,
                    coded_key,
                    window,
                    self._known_windows.entry_of(window).coded,
                    state,
                    values,
                )
                for window, state in windows
                if not state.has_expired
                and isinstance(values := state.values, StoredPaneValues)
                and values.is_worth_merging
            )

    def _end(self, coded_key: bytes) -> None:
        if self._is_keyed:
            self.push()
            self._input.begin_key(coded_key)
            self._input.advance_key_until(self._stored_windows.least_hold())

    def _push_panes(self, key: object, panes: Iterable[WindowedValue]) -> None:
        for pane in charged(iter(panes), self._name):
            if isinstance(pane.value, StoredPane):
                logged, push = self._logs.new(), functools.partial(self._push_pane, key, pane)
                self._hand_out(logged, pane.value.coded, pane.value.decode, push)
            else:
                self._push_pane(key, pane, pane.value)

    def _push_pane(self, key: object, pane: WindowedValue, values: Any) -> None:
        element = (key, values)
        self._chunks.add(element, pane.with_value(element), 0)

    @override
    def push(self) -> None:
        super().push()
        self._waiting_bytes = 0

    def finish(self) -> None:
        """Push the buffered panes and merge the pending long windows; called after the last key."""
        self.push()
        if self._long is not None:
            self._long.merge()
