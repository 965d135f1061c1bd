"""State among sorted records does what state in memory does."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import (
    Address,
    Bag,
    Cell,
    ListRange,
    MapEntries,
    MapKeys,
    MapValues,
    Page,
    StateBackend,
    StoredTimer,
)
from beam_spark_runner.state.memory import MemoryState
from beam_spark_runner.state.store import StoredState
from tests.examples import examples
from tests.unit.state.sorted_records import SortedRecords, count_values, list_entry, pages

PAGE_BYTES = 8


def stored(records: SortedRecords) -> StoredState:
    return StoredState(records, 3, count_values, page_bytes=PAGE_BYTES)


LONG = b"x" * 600
LONG_NAME = "u" * 600
KEYS = st.sampled_from([b"", b"k", b"kk", LONG, LONG + b"y"])
WINDOWS = st.sampled_from([b"", b"w", LONG])
# Few, so that one is used often; with neighbours that a wrong prefix would take for the same.
CELLS = st.sampled_from(
    [
        Cell("t", "s", b"w", b"k"),
        Cell("t", LONG_NAME, b"w", b"k"),
        Cell("t", "s", b"", b"k"),
        Cell(LONG_NAME, "s", b"w", b"k"),
        Cell("t", "s", b"w", b"kk"),
        Cell("t", "s", LONG, LONG),
        Cell("t", "s", LONG, LONG + b"y"),
    ]
)
VALUES = st.lists(st.binary(max_size=9), min_size=1, max_size=4)
PIECES = st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=4)
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


class Backends(RuleBasedStateMachine):
    """The same calls to state in memory and to state among records, which is often opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.records = SortedRecords()
        self.memory = MemoryState(count_values, page_bytes=PAGE_BYTES)
        self.store = stored(self.records)
        self.kinds: dict[Cell, str] = {}
        self.timers: dict[tuple[str, bytes], list[StoredTimer]] = {}
        self.readers: list[tuple[Address, Page, Page]] = []

    def _is(self, cell: Cell, kind: str) -> bool:
        """Whether the cell is of a kind; the first use of it decides."""
        return self.kinds.setdefault(cell, kind) == kind

    @rule()
    def open_anew(self) -> None:
        self.store = stored(self.records)

    @rule(cell=CELLS, pieces=PIECES)
    def append_to_bag(self, cell: Cell, pieces: list[bytes]) -> None:
        if self._is(cell, "bag"):
            for each in (self.memory, self.store):
                for data in pieces:
                    each.append(Bag(cell), data)

    @rule(cell=CELLS, map_keys=st.lists(MAP_KEYS, min_size=1, max_size=4), pieces=VALUES)
    def append_to_map(self, cell: Cell, map_keys: list[bytes], pieces: list[bytes]) -> None:
        if self._is(cell, "map"):
            for each in (self.memory, self.store):
                for map_key in map_keys:
                    for data in pieces:
                        each.append(MapValues(cell, map_key), data)

    @rule(cell=CELLS, sort_key=SORT_KEYS, pieces=PIECES)
    def append_to_list(self, cell: Cell, sort_key: int, pieces: list[bytes]) -> None:
        if self._is(cell, "list"):
            for each in (self.memory, self.store):
                for data in pieces:
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

    @rule(transform=st.sampled_from(["t", LONG_NAME]), key=KEYS, timers=TIMERS)
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

    def _places(self, cell: Cell, start: int, end: int) -> list[Address]:
        match self.kinds.get(cell):
            case "bag":
                return [Bag(cell)]
            case "list":
                return [ListRange(cell, min(start, end), max(start, end))]
            case "map":
                values = [MapValues(cell, each) for each in (b"a", b"ab", LONG, LONG + b"z")]
                return [MapKeys(cell), MapEntries(cell), *values]
        return []

    @rule(cell=CELLS, start=SORT_KEYS, end=SORT_KEYS)
    def compare_a_cell(self, cell: Cell, start: int, end: int) -> None:
        for place in self._places(cell, start, end):
            assert list(pages(self.store, place)) == list(pages(self.memory, place))

    @rule(cell=CELLS, start=SORT_KEYS, end=SORT_KEYS)
    def begin_to_read(self, cell: Cell, start: int, end: int) -> None:
        for place in self._places(cell, start, end):
            ours, theirs = self.store.get(place), self.memory.get(place)
            assert (ours.data, bool(ours.token)) == (theirs.data, bool(theirs.token))
            if ours.token:
                self.readers.append((place, ours, theirs))

    @rule(number=st.integers(0, 20))
    def go_on_reading(self, number: int) -> None:
        for place, ours, theirs in self.readers[number : number + 3]:
            assert self._rest(self.store, place, ours) == self._rest(self.memory, place, theirs)

    @staticmethod
    def _rest(backend: StateBackend, place: Address, page: Page) -> list[bytes] | str:
        try:
            return list(pages(backend, place, page.token))
        except FnApiProtocolError as error:
            return str(error)

    @rule(watermark_us=TIMES, clock_us=TIMES)
    def compare_what_is_due(self, watermark_us: int, clock_us: int) -> None:
        def is_due(timer: StoredTimer) -> bool:
            is_of_clock = timer.domain is Domain.PROCESSING_TIME
            return timer.fires_us <= (clock_us if is_of_clock else watermark_us)

        expected = {place for place, timers in self.timers.items() if any(map(is_due, timers))}
        found = list(self.store.due(watermark_us, clock_us))
        assert len(found) == len(set(found))
        assert set(found) == expected

    @rule(watermark_us=TIMES, clock_us=TIMES, left=st.lists(TIMERS, max_size=3))
    def fire_what_is_due(
        self, watermark_us: int, clock_us: int, left: list[list[StoredTimer]]
    ) -> None:
        fired = []
        for transform, key in self.store.due(watermark_us, clock_us):
            fired.append((transform, key))
            # Some of what is left may be due, too.
            self.set_timers(transform, key, left.pop() if left else [])
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
TestBackends.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
