"""GroupByKey in epochs: the windows of a key are stored until their triggers fire."""

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apache_beam.coders import Coder, WindowedValueCoder
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated.store_pb2 import PaneState
from beam_spark_runner.core.mapping import map_all
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.harness.bundle import StoringInput
from beam_spark_runner.harness.grouping.operator import GroupByKey, Grouping, charged
from beam_spark_runner.harness.grouping.stored_panes import (
    GROUPING,
    PaneBags,
    StoredPane,
    StoredValues,
)
from beam_spark_runner.harness.values.spill import ValueLog, ValueLogs
from beam_spark_runner.portable.windowing import decode_windowing
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.semantics.panes import KeyWindows, PaneMachine, WindowState
from beam_spark_runner.semantics.timers import Domain, Instant
from beam_spark_runner.semantics.trigger_machines import TriggerState
from beam_spark_runner.state.backend import Bag, Cell, StateBackend, StoredTimer

_ON_CLOCK = "clock"
_MOST_UNMERGED = 1000
_MOST_UNMERGED_BYTES = 16 << 20

MergeAccumulators = Callable[[Sequence[WindowedValue]], Sequence[Any]]
"""From elements KV<key, accumulators> to an accumulator for each."""


class _Unmerged(NamedTuple):
    """A window of a key with many accumulators."""

    key: object
    coded_key: bytes
    window: Any
    coded_window: bytes
    state: WindowState
    values: StoredValues


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the store has of a key.

    Attributes:
        windows: by its encoding, what a window has besides its values.
        bags: with the values of all of them.
    """

    windows: dict[bytes, bytes] = field(default_factory=dict)
    bags: set[bytes] = field(default_factory=set)


class GroupsInEpochs(GroupByKey):
    """Pushes the panes that fire in an epoch, and stores what waits for a later one.

    Each window of a key has a cell in the store, with a timer for when it has to be looked at
    again; the timer's hold is the window's. Its values are in bags of their own.

    Args:
        grouping: see there.
        coder: of the elements.
        bundle: takes them.
        logs: of the task.
        store: of the stage.
        before: until when the epoch before came: elements are late by its watermark.
        now: until when this epoch comes.
        late: counts those that are dropped.
        merge: where the values are accumulators: merges some, so that long windows stay small.
    """

    def __init__(
        self,
        grouping: Grouping,
        coder: WindowedValueCoder,
        bundle: StoringInput,
        logs: ValueLogs,
        *,
        store: StateBackend,
        before: Instant,
        now: Instant,
        late: LateElements,
        merge: MergeAccumulators | None = None,
    ) -> None:
        super().__init__(grouping, coder, bundle, logs)
        self._merge = merge
        self._unmerged: dict[bytes, list[_Unmerged]] = {}  # by encoded key
        self._unmerged_bytes = 0
        self._input = bundle
        self._name = grouping.name
        self._store, self._before, self._now = store, before, now
        element_coder = coder.wrapped_value_coder
        value_coder = element_coder.value_coder().value_coder()
        self._decode_key = element_coder.key_coder().get_impl().decode_nested
        self._window_coder: Coder = coder.window_coder
        self._bags = PaneBags(store, value_coder)
        self._decode_windowed = (
            WindowedValueCoder(value_coder, coder.window_coder).get_impl().decode
        )
        self._machine = PaneMachine(
            decode_windowing(grouping.coded_windowing), self._bags.new_values, late
        )

    def group(self, key: bytes, values: list[bytes], order: int) -> None:
        """See ``GroupByKey.group``. The key is nested."""
        self._advance(key, map_all(self._decode_windowed, values))

    def stream(self, key: bytes, order: int, log: ValueLog, source: Iterable[bytes] = ()) -> None:
        """See ``GroupByKey.stream``. The key is nested."""
        every = itertools.chain(log, source)
        self._advance(key, map(self._decode_windowed, every))
        log.close()

    def fire(self, key: bytes) -> None:
        """Push the panes of a key that fire without further elements, and advance the key.

        Args:
            key: encoded, nested.
        """
        self._advance(key, ())

    def _advance(self, coded_key: bytes, elements: Iterable[WindowedValue]) -> None:
        key = self._decode_key(coded_key)
        if coded_key in self._unmerged:
            self.finish()
        self._bags.key = coded_key
        before, windows = self._load(coded_key)
        panes = itertools.chain(
            self._machine.add(windows, elements, self._before),
            self._machine.advance(windows, self._now),
        )
        for pane in charged(panes, self._name):
            if isinstance(pane.value, StoredPane):
                logged, push = self._logs.new(), functools.partial(self._push_pane, key, pane)
                self._hand_out(logged, pane.value.coded, pane.value.decode, push)
            else:
                self._push_pane(key, pane, pane.value)
        hold_us = self._save(key, coded_key, windows, before)
        if len(self._unmerged) >= _MOST_UNMERGED or self._unmerged_bytes >= _MOST_UNMERGED_BYTES:
            self.finish()
        self._chunks.push()
        if self._is_keyed:
            self._input.begin_key(coded_key)
            self._input.advance_key_until(hold_us)

    def _push_pane(self, key: object, pane: WindowedValue, values: Any) -> None:
        element = (key, values)
        self._chunks.add(element, pane.with_value(element), 0)

    def _load(self, key: bytes) -> tuple[_Stored, KeyWindows]:
        stored = _Stored()
        windows: KeyWindows = {}
        for timer in self._store.timers(GROUPING, key):
            if timer.window not in stored.windows:
                coded = stored.windows[timer.window] = self._read(_cell(timer.window, key))
                proto = PaneState.FromString(coded[1:])
                stored.bags.update(proto.bags)
                windows[self._window_coder.decode(timer.window)] = self._decoded(proto)
        return stored, windows

    def _read(self, cell: Cell) -> bytes:
        page = self._store.get(Bag(cell))
        parts = [page.data]
        while page.token:
            page = self._store.get(Bag(cell), page.token)
            parts.append(page.data)
        return b"".join(parts)

    def finish(self) -> None:
        """Merge what waits for it; after the last key."""
        if self._merge is None or not self._unmerged:
            return
        unmerged = [*itertools.chain.from_iterable(self._unmerged.values())]
        self._unmerged, self._unmerged_bytes = {}, 0
        merged = self._merge([*map(self._group_of, unmerged)])
        for each, accumulator in zip(unmerged, merged, strict=True):
            self._bags.key = each.coded_key
            self._bags.replace(each.values, accumulator)
            cell = Bag(_cell(each.coded_window, each.coded_key))
            self._store.clear(cell)
            self._store.append(cell, _encoded(each.state, each.values))

    def _group_of(self, each: _Unmerged) -> WindowedValue:
        self._bags.key = each.coded_key
        pane = each.values.pane(keeps=True)
        values = [*map(pane.decode, pane.coded)] if isinstance(pane, StoredPane) else pane
        return WindowedValue((each.key, values), each.window.max_timestamp(), (each.window,))

    def _save(self, decoded_key: object, key: bytes, windows: KeyWindows, before: _Stored) -> int:
        """Store the windows of a key.

        Returns:
            The event time that its output must not pass.
        """
        timers: list[StoredTimer] = []
        kept: set[bytes] = set()
        kept_bags: set[bytes] = set()
        least_us = MAX_US
        for window, state in windows.items():
            values = state.values
            assert isinstance(values, StoredValues)
            self._bags.save(values)
            kept_bags.update(values.bags)
            coded_window = self._window_coder.encode(window)
            kept.add(coded_window)
            coded = _encoded(state, values)
            if coded != before.windows.get(coded_window):
                cell = Bag(_cell(coded_window, key))
                if coded_window in before.windows:
                    self._store.clear(cell)
                self._store.append(cell, coded)
            if self._merge is not None and values.is_worth_merging:
                self._unmerged.setdefault(key, []).append(
                    _Unmerged(decoded_key, key, window, coded_window, state, values)
                )
                self._unmerged_bytes += values.stored_bytes
            hold_us = self._machine.hold_us(window, state)
            hold_us = MAX_US if hold_us is None else hold_us
            least_us = min(least_us, hold_us)
            event_us, clock_us = self._machine.due(window, state, self._now)
            timers.append(
                StoredTimer("", "", coded_window, Domain.EVENT_TIME, event_us, hold_us, b"")
            )
            if clock_us is not None:
                timers.append(
                    StoredTimer(
                        _ON_CLOCK, "", coded_window, Domain.PROCESSING_TIME, clock_us, MAX_US, b""
                    )
                )
        for coded_window in before.windows.keys() - kept:
            self._store.clear(Bag(_cell(coded_window, key)))
        for bag in before.bags - kept_bags:
            self._bags.clear(bag)
        if timers or before.windows:
            self._store.set_timers(GROUPING, key, timers)
        return least_us

    def _decoded(self, proto: PaneState) -> WindowState:
        return WindowState(
            trigger=TriggerState(set(proto.finished), dict(proto.counts), dict(proto.due_us)),
            values=self._bags.new_values(proto),
            has_news=proto.has_news,
            hold=Timestamp(micros=proto.hold_us) if proto.HasField("hold_us") else None,
            panes=proto.panes,
            later_panes=proto.later_panes,
            is_closed=proto.is_closed,
            has_ended=proto.has_ended,
        )


def _encoded(state: WindowState, values: StoredValues) -> bytes:
    trigger, hold = state.trigger, state.hold
    proto = PaneState(
        finished=sorted(trigger.finished),
        counts=trigger.counts,
        due_us=trigger.due_us,
        has_news=state.has_news,
        hold_us=None if hold is None else hold.micros,
        panes=state.panes,
        later_panes=state.later_panes,
        is_closed=state.is_closed,
        has_ended=state.has_ended,
        bags=values.bags,
        stored=values.stored,
        stored_bytes=values.stored_bytes,
        merged_bytes=values.merged_bytes,
    )
    # An empty message would be an empty bag, which is not there.
    return b"\0" + proto.SerializeToString(deterministic=True)


def _cell(window: bytes, key: bytes) -> Cell:
    return Cell(GROUPING, "panes", window, key)
