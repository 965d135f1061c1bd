"""Time-sorted input: elements wait until the watermark passes them, and are then sorted."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from apache_beam.coders import Coder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.varint import coded_varint, read_varint
from beam_spark_runner.harness.bundle import BundleInput, SteppedInput
from beam_spark_runner.harness.chunking import Chunks
from beam_spark_runner.semantics.lateness import (
    IsExpired,
    LateElements,
    drop_expired,
    waiting_hold_us,
)
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Cell, ListRange, StateBackend, StoredTimer, pages
from beam_spark_runner.state.memory import list_entries

TIME_SORTED = "time sorted"
"""Takes the place of a transform id in the store; no step of the stage has this id."""
_NO_WINDOW = b""
_FIRST, _END = -(1 << 63), (1 << 63) - 1  # of sort keys, which are microseconds


class TimeSortedElements:
    """Stores the elements of each key, and pushes them in order once the watermark passes them.

    The elements of a key are an ordered list in the store. A timer is due at the first of them,
    and holds the watermark there. An element whose window ends before its timestamp has its own
    timer, which holds the watermark at that end.

    Args:
        store: The stage's records in the shard.
        coder: The coder of the elements, which are KVs.
        late_before_us: Event time. Elements with an earlier timestamp are dropped, since later
            ones may have been pushed already.
        is_expired: Whether a window of the input has expired.
        late: Counts the dropped elements.
        has_timers: Whether the step may set timers.
    """

    def __init__(
        self,
        store: StateBackend,
        coder: WindowedValueCoder,
        *,
        late_before_us: int,
        is_expired: IsExpired,
        late: LateElements,
        has_timers: bool,
    ) -> None:
        self._store = store
        self._late_before_us = late_before_us
        self._is_expired, self._late = is_expired, late
        self._has_timers = has_timers
        self._encode = coder.get_impl().encode
        self._decode = coder.get_impl().decode
        key_coder: Coder = coder.wrapped_value_coder.key_coder()
        self._encode_key = key_coder.get_impl().encode_nested

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Store elements of one key."""
        entries = []
        first_us = None
        holds_us: dict[int, int] = {}  # by timestamp, where windows end before it
        timely = drop_expired(values, origins, self._is_expired, self._late)
        for value, origin in zip(*timely, strict=True):
            time_us = origin.timestamp_micros
            if time_us < self._late_before_us:
                self._late.dropped += len(origin.windows)
                continue
            coded = self._encode(origin.with_value(value))
            entries.append(coded_varint(time_us % (1 << 64)) + coded_varint(len(coded)) + coded)
            first_us = time_us if first_us is None else min(first_us, time_us)
            hold_us = waiting_hold_us(origin)
            if hold_us < time_us:
                holds_us[time_us] = min(hold_us, holds_us.get(time_us, hold_us))
        if first_us is None:
            return
        key = self._encode_key(values[0][0])
        self._store.append(_range(key, _FIRST, _END), b"".join(entries))
        self._expect(key, first_us, holds_us)

    def advance_key(self) -> None:
        """See ``BundleInput.advance_key``: the key's time advances in ``process``."""

    def flush(self) -> None:
        """See ``BundleInput.flush``: stored elements wait for ``process``."""

    def process(
        self, key: bytes, bundle: BundleInput, keys: SteppedInput | None, until_us: int
    ) -> None:
        """Push the stored elements of a key, interleaved with its timers; then advance the key.

        If an element and a timer have the same time, the element comes first.

        Args:
            key: The key, encoded, nested.
            bundle: Gets the elements.
            keys: The same bundle if the step has state or timers, else None.
            until_us: Event time; elements after it remain stored.
        """
        if keys is not None:
            keys.begin_key(key)
        entries = self._entries(key)
        chunks = Chunks(bundle)
        waits_us, has_passed = None, False
        for time_us, alike in itertools.groupby(entries, key=lambda entry: entry[0]):
            if time_us > until_us:
                waits_us = time_us
                break
            has_passed = True
            if keys is not None and self._has_timers:
                chunks.push()
                keys.fire_until(time_us - 1)
            for _, coded in alike:
                element = self._decode(coded)
                chunks.add(element.value, element, len(coded))
        chunks.push()
        if has_passed:
            self._store.clear(_range(key, _FIRST, until_us + 1))
            self._pass(key, waits_us)
        bundle.advance_key()

    def _expect(self, key: bytes, first_us: int, holds_us: Mapping[int, int]) -> None:
        """Set the timers of a key that has got more elements.

        Args:
            key: The key, encoded, nested.
            first_us: The least timestamp of the new elements.
            holds_us: The holds of those whose windows end before their timestamps, by timestamp.
        """
        timers = self._store.timers(TIME_SORTED, key)
        least_us = min((timer.fires_us for timer in timers), default=None)
        if least_us is not None and least_us <= first_us and not holds_us:
            return
        held_us = _earlier_holds(timers)
        for time_us, hold_us in holds_us.items():
            held_us[time_us] = min(hold_us, held_us.get(time_us, hold_us))
        self._set(key, first_us if least_us is None else min(first_us, least_us), held_us)

    def _pass(self, key: bytes, waits_us: int | None) -> None:
        """Remove the timers of elements that have been pushed.

        Args:
            key: The key, encoded, nested.
            waits_us: The timestamp of the first element that is still stored; None: none is.
        """
        if waits_us is None:
            self._store.set_timers(TIME_SORTED, key, ())
            return
        timers = [
            timer for timer in self._store.timers(TIME_SORTED, key) if timer.fires_us >= waits_us
        ]
        self._set(key, waits_us, _earlier_holds(timers))

    def _set(self, key: bytes, first_us: int, held_us: dict[int, int]) -> None:
        """Set a timer for the first element, and for each that holds the watermark before it."""
        held_us.setdefault(first_us, first_us)
        timers = [
            StoredTimer("", str(number or ""), _NO_WINDOW, Domain.EVENT_TIME, *times, b"")
            for number, times in enumerate(sorted(held_us.items()))
        ]
        self._store.set_timers(TIME_SORTED, key, timers)

    def _entries(self, key: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the time and the encoding of each stored element of the key."""
        for data in pages(self._store, _range(key, _FIRST, _END)):
            for time_us, entry in list_entries(data):
                _, position = read_varint(entry, 0)
                _, start = read_varint(entry, position)
                yield time_us, entry[start:]


def _earlier_holds(timers: Iterable[StoredTimer]) -> dict[int, int]:
    return {timer.fires_us: timer.hold_us for timer in timers if timer.hold_us < timer.fires_us}


def _range(key: bytes, start_us: int, end_us: int) -> ListRange:
    return ListRange(Cell(TIME_SORTED, "elements", _NO_WINDOW, key), start_us, end_us)
