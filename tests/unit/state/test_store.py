"""State among sorted records does what state in memory does."""

import bisect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import (
    Bag,
    Cell,
    ListRange,
    MapEntries,
    MapKeys,
    MapValues,
    StateBackend,
    StoredTimer,
)
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.shards import KEY_LIMIT
from beam_spark_runner.state.store import StoredState

PAGE_BYTES = 8


class SortedRecords:
    """Records in memory."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._order: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self.values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        assert 0 < len(key) <= KEY_LIMIT
        if key not in self.values:
            bisect.insort(self._order, key)
        self.values[key] = value

    def delete(self, key: bytes) -> bool:
        if key not in self.values:
            return False
        del self.values[key]
        self._order.remove(key)
        return True

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        place = bisect.bisect_left(self._order, max(prefix, start))
        while place < len(self._order) and (key := self._order[place]).startswith(prefix):
            yield key, self.values[key]
            place = bisect.bisect_right(self._order, key)

    def delete_prefix(self, prefix: bytes) -> None:
        for key, _ in list(self.scan(prefix)):
            self.delete(key)


def count_values(cell: Cell, data: bytes) -> int:
    return len(data)


def stored(records: SortedRecords) -> StoredState:
    return StoredState(records, 3, count_values, page_bytes=PAGE_BYTES)


def read(backend: StateBackend, address: Any) -> bytes:
    page = backend.get(address)
    data = page.data
    while page.token:
        page = backend.get(address, page.token)
        data += page.data
    return data


LONG = b"x" * 600
KEYS = st.sampled_from([b"", b"k", b"kk", LONG, LONG + b"y"])
WINDOWS = st.sampled_from([b"", b"w", LONG])
CELLS = st.builds(Cell, st.sampled_from(["t", "u" * 600]), st.just("s"), WINDOWS, KEYS)
DATA = st.binary(min_size=1, max_size=9)
MAP_KEYS = st.sampled_from([b"a", b"ab", LONG, LONG + b"z"])
SORT_KEYS = st.integers(-3, 3) | st.sampled_from([-(1 << 63), (1 << 63) - 1])
TIMES = st.integers(-5, 5) | st.just(MAX_US)
TIMERS = st.lists(
    st.builds(
        StoredTimer,
        st.sampled_from(["f", "g"]),
        st.sampled_from(["", "tag"]),
        WINDOWS,
        st.sampled_from(Domain),
        TIMES,
        TIMES,
        st.binary(max_size=2),
    ),
    max_size=4,
)


def list_entry(sort_key: int, data: bytes) -> bytes:
    number, coded = sort_key % (1 << 64), bytearray()
    while number > 127:
        coded.append(number & 127 | 128)
        number >>= 7
    return bytes([*coded, number, len(data)]) + data


class Backends(RuleBasedStateMachine):
    """The same calls to state in memory and to state among records, which is often opened anew."""

    def __init__(self) -> None:
        super().__init__()
        self.records = SortedRecords()
        self.memory = MemoryState(count_values, page_bytes=PAGE_BYTES)
        self.store = stored(self.records)
        self.kinds: dict[Cell, str] = {}
        self.timers: dict[tuple[str, bytes], list[StoredTimer]] = {}

    def _is(self, cell: Cell, kind: str) -> bool:
        """Whether the cell is of a kind; the first use of it decides."""
        return self.kinds.setdefault(cell, kind) == kind

    @rule()
    def open_anew(self) -> None:
        self.store = stored(self.records)

    @rule(cell=CELLS, data=DATA)
    def append_to_bag(self, cell: Cell, data: bytes) -> None:
        if self._is(cell, "bag"):
            for each in (self.memory, self.store):
                each.append(Bag(cell), data)

    @rule(cell=CELLS, map_key=MAP_KEYS, data=DATA)
    def append_to_map(self, cell: Cell, map_key: bytes, data: bytes) -> None:
        if self._is(cell, "map"):
            for each in (self.memory, self.store):
                each.append(MapValues(cell, map_key), data)

    @rule(cell=CELLS, sort_key=SORT_KEYS, data=DATA)
    def append_to_list(self, cell: Cell, sort_key: int, data: bytes) -> None:
        if self._is(cell, "list"):
            for each in (self.memory, self.store):
                each.append(ListRange(cell, 0, 0), list_entry(sort_key, data))

    @rule(cell=CELLS, map_key=MAP_KEYS | st.none(), start=SORT_KEYS, end=SORT_KEYS)
    def clear(self, cell: Cell, map_key: bytes | None, start: int, end: int) -> None:
        addresses: dict[str, Any] = {
            "bag": Bag(cell),
            "map": MapKeys(cell) if map_key is None else MapValues(cell, map_key),
            "list": ListRange(cell, min(start, end), max(start, end)),
        }
        if cell in self.kinds:
            for each in (self.memory, self.store):
                each.clear(addresses[self.kinds[cell]])

    @rule(transform=st.sampled_from(["t", "u" * 600]), key=KEYS, timers=TIMERS)
    def set_timers(self, transform: str, key: bytes, timers: list[StoredTimer]) -> None:
        self.timers[transform, key] = timers
        for each in (self.memory, self.store):
            each.set_timers(transform, key, timers)

    @rule(key=KEYS)
    def drop(self, key: bytes) -> None:
        for each in (self.memory, self.store):
            each.drop(key)
        self.timers = {place: set_ for place, set_ in self.timers.items() if place[1] != key}

    @rule(cell=CELLS)
    def drop_window(self, cell: Cell) -> None:
        for each in (self.memory, self.store):
            each.drop_window(cell.transform, cell.window, cell.key)

    @rule(cell=CELLS, start=SORT_KEYS, end=SORT_KEYS)
    def compare_a_cell(self, cell: Cell, start: int, end: int) -> None:
        match self.kinds.get(cell):
            case "bag":
                assert read(self.store, Bag(cell)) == read(self.memory, Bag(cell))
            case "list":
                part = ListRange(cell, min(start, end), max(start, end))
                assert read(self.store, part) == read(self.memory, part)
            case "map":
                for map_key in (b"a", b"ab", LONG, LONG + b"z"):
                    place = MapValues(cell, map_key)
                    assert read(self.store, place) == read(self.memory, place)
                for whole in (MapKeys(cell), MapEntries(cell)):
                    # In any order.
                    assert Counter(read(self.store, whole)) == Counter(read(self.memory, whole))

    @rule(watermark_us=TIMES, clock_us=TIMES)
    def compare_what_is_due(self, watermark_us: int, clock_us: int) -> None:
        def is_due(timer: StoredTimer) -> bool:
            is_of_clock = timer.domain is Domain.PROCESSING_TIME
            return timer.fires_us <= (clock_us if is_of_clock else watermark_us)

        expected = {place for place, timers in self.timers.items() if any(map(is_due, timers))}
        assert set(self.store.due(watermark_us, clock_us)) == expected

    @rule(watermark_us=TIMES)
    def fire_what_is_due(self, watermark_us: int) -> None:
        fired = []
        for transform, key in self.store.due(watermark_us, -10):
            fired.append((transform, key))
            self.set_timers(transform, key, [])
        assert len(fired) == len(set(fired))

    @invariant()
    def timers_are_the_same(self) -> None:
        for (transform, key), timers in self.timers.items():
            assert list(self.store.timers(transform, key)) == timers
            assert list(self.memory.timers(transform, key)) == timers
        every = [timer for timers in self.timers.values() for timer in timers]
        clocks = [each.fires_us for each in every if each.domain is Domain.PROCESSING_TIME]
        events = [each.fires_us for each in every if each.domain is not Domain.PROCESSING_TIME]
        assert self.store.next_due() == (min(events, default=None), min(clocks, default=None))
        holds = [each.hold_us for each in every if each.hold_us != MAX_US]
        assert self.store.least_hold() == min(holds, default=None)


TestBackends = Backends.TestCase
TestBackends.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_dropped_key_leaves_nothing() -> None:
    records = SortedRecords()
    store = stored(records)
    cell = Cell("t", "s", b"w", b"k")
    store.append(Bag(cell), b"1")
    store.set_timers("t", b"k", [StoredTimer("f", "", b"w", Domain.EVENT_TIME, 1, 2, b"")])
    store.drop(b"k")
    assert records.values == {}


def test_a_page_token_is_void_once_the_cell_is_cleared() -> None:
    store = stored(SortedRecords())
    bag = Bag(Cell("t", "s", b"w", b"k"))
    for _ in range(3):
        store.append(bag, b"x" * PAGE_BYTES)
    token = store.get(bag).token
    assert token
    store.clear(bag)
    with pytest.raises(FnApiProtocolError, match="cleared while it was read"):
        store.get(bag, token)
    with pytest.raises(FnApiProtocolError, match="a token that is none"):
        store.get(bag, b"?")


def test_a_reader_sees_what_was_there_when_it_began() -> None:
    store = stored(SortedRecords())
    bag = Bag(Cell("t", "s", b"w", b"k"))
    for _ in range(3):
        store.append(bag, b"x" * PAGE_BYTES)
    page = store.get(bag)
    store.append(bag, b"new")
    rest = store.get(bag, page.token)
    while rest.token:
        rest = store.get(bag, rest.token)
    assert b"new" not in rest.data


def test_a_state_has_one_kind() -> None:
    store = stored(SortedRecords())
    cell = Cell("t", "s", b"w", b"k")
    store.append(Bag(cell), b"1")
    with pytest.raises(FnApiProtocolError, match="the state s is used as if it were of another"):
        store.append(MapValues(cell, b"a"), b"1")
    for address in (MapKeys(cell), MapEntries(cell)):
        with pytest.raises(FnApiProtocolError, match="nothing can be added"):
            store.append(address, b"1")
    with pytest.raises(FnApiProtocolError, match="cleared by its keys"):
        store.clear(MapEntries(cell))
