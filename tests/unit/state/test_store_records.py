"""What state among sorted records writes and reads of them, and what it refuses."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    StateBackend,
    StoredTimer,
)
from beam_spark_runner.state.memory import UNCOUNTED, MemoryState
from beam_spark_runner.state.store import StoredState
from tests.unit.state.sorted_records import SortedRecords, count_values, list_entry, pages, read

PAGE_BYTES = 8


def stored(records: SortedRecords) -> StoredState:
    return StoredState(records, 3, count_values, page_bytes=PAGE_BYTES)


def test_a_dropped_key_leaves_nothing() -> None:
    records = SortedRecords()
    store = stored(records)
    cell = Cell("t", "s", b"w", b"k")
    store.append(Bag(cell), b"1")
    store.set_timers("t", b"k", [StoredTimer("f", "", b"w", Domain.EVENT_TIME, 1, 2, b"")])
    store.drop(b"k")
    assert records.values == {}


def test_what_is_dropped_is_not_the_beginning_of_others() -> None:
    store = stored(SortedRecords())
    others = [
        Cell("t", "s", window, key) for window in (b"w", b"ww", b"\1w") for key in (b"", b"kk")
    ]
    others += [Cell("t", "s", b"w", b"k"), Cell("tt", "s", b"", b"k")]
    dropped = Cell("t", "s", b"", b"k")
    for cell in (*others, dropped):
        store.append(Bag(cell), b"1")
    store.drop_window("t", b"", b"k")
    store.drop(b"k" * 3)
    assert [read(store, Bag(cell)) for cell in others] == [b"1"] * len(others)
    assert read(store, Bag(dropped)) == b""


def test_a_page_token_is_void_once_the_cell_is_cleared() -> None:
    store = stored(SortedRecords())
    bag = Bag(Cell("t", "s", b"w", b"k"))
    for _ in range(3):
        store.append(bag, b"x" * PAGE_BYTES)
    token = store.get(bag).token
    assert token
    store.clear(bag)
    with pytest.raises(FnApiProtocolError, match="cleared while the SDK read it"):
        store.get(bag, token)
    with pytest.raises(FnApiProtocolError, match="token of another state"):
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


IN_BAG, IN_MAP, IN_LIST = (Cell("t", kind, b"w", b"k") for kind in ("bag", "map", "list"))
ALL_OF_LIST = ListRange(IN_LIST, -5, 5)
READ: tuple[Address, ...] = (
    Bag(IN_BAG),
    MapValues(IN_MAP, b"m"),
    MapKeys(IN_MAP),
    MapEntries(IN_MAP),
    ALL_OF_LIST,
)
CHANGES: dict[str, Callable[[StateBackend], None]] = {
    "nothing": lambda backend: None,
    "append to the bag": lambda backend: backend.append(Bag(IN_BAG), b"new"),
    "clear the bag": lambda backend: backend.clear(Bag(IN_BAG)),
    "append values": lambda backend: backend.append(MapValues(IN_MAP, b"m"), b"new"),
    "append a map key": lambda backend: backend.append(MapValues(IN_MAP, b"a"), b"new"),
    "clear a map key": lambda backend: backend.clear(MapValues(IN_MAP, b"l")),
    "clear a map key that is not there": lambda backend: backend.clear(MapValues(IN_MAP, b"?")),
    "clear the map": lambda backend: backend.clear(MapKeys(IN_MAP)),
    "append to the list": lambda backend: backend.append(ALL_OF_LIST, list_entry(2, b"new")),
    "clear a part of the list": lambda backend: backend.clear(ListRange(IN_LIST, 0, 1)),
    "clear nothing of the list": lambda backend: backend.clear(ListRange(IN_LIST, 4, 5)),
    "clear the list": lambda backend: backend.clear(ALL_OF_LIST),
    "drop": lambda backend: backend.drop(b"k"),
    "drop the window": lambda backend: backend.drop_window("t", b"w", b"k"),
}


def fill(backend: StateBackend) -> None:
    for number in range(4):
        backend.append(Bag(IN_BAG), b"%d" % number)
        backend.append(ALL_OF_LIST, list_entry(number, b"v"))
        for map_key in (b"n", b"m", b"l"):
            backend.append(MapValues(IN_MAP, map_key), b"%d" % number)


@pytest.mark.parametrize("is_filled_again", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("address", READ, ids=lambda address: type(address).__name__)
def test_a_reader_finds_what_it_would_in_memory(
    address: Address, change: str, *, is_filled_again: bool
) -> None:
    records = SortedRecords()
    found: list[list[bytes] | str] = []
    for backend in (
        MemoryState(count_values, page_bytes=1),
        StoredState(records, 3, count_values, page_bytes=1),
    ):
        fill(backend)
        token = backend.get(address).token
        CHANGES[change](backend)
        if is_filled_again:
            fill(backend)
        if isinstance(backend, StoredState):
            backend = StoredState(records, 3, count_values, page_bytes=1)
        try:
            found.append(list(pages(backend, address, token)))
        except FnApiProtocolError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_a_state_has_one_kind() -> None:
    store = stored(SortedRecords())
    cell = Cell("t", "s", b"w", b"k")
    store.append(Bag(cell), b"1")
    with pytest.raises(FnApiProtocolError, match="the state s was written as another kind"):
        store.append(MapValues(cell, b"a"), b"1")
    for address in (MapKeys(cell), MapEntries(cell)):
        with pytest.raises(FnApiProtocolError, match="cannot append to the"):
            store.append(address, b"1")
    with pytest.raises(FnApiProtocolError, match="only its MapKeys"):
        store.clear(MapEntries(cell))


def event_timer(tag: str, fires_us: int, window: bytes = b"w") -> StoredTimer:
    return StoredTimer("f", tag, window, Domain.EVENT_TIME, fires_us, fires_us, b"")


def test_setting_timers_writes_what_is_changed() -> None:
    records = SortedRecords()
    store = stored(records)
    timers = [event_timer(str(number), number) for number in range(100)]
    store.set_timers("t", b"k", timers)
    again = event_timer("7", 200)
    for left, written in (
        (timers, 0),
        # The first fires, and is not first in the index any more; its hold is gone.
        (timers[1:], 2),
        # Another one is set again.
        ([*timers[1:7], *timers[8:], again], 1),
        # In the middle, one has another pane.
        ([*timers[1:7], *timers[8:50], timers[50]._replace(pane=b"p"), *timers[51:], again], 1),
        # That pane is as before, and what was set again is cleared.
        ([*timers[1:7], *timers[8:]], 1),
    ):
        records.puts.clear()
        store.set_timers("t", b"k", left)
        assert len(records.puts) == written
        assert list(store.timers("t", b"k")) == left
    store.drop(b"k")
    assert records.values == {}


def test_a_timer_that_changes_places_is_written_alone() -> None:
    records = SortedRecords()
    store = stored(records)
    first, *others = [event_timer(str(number), 1) for number in range(100)]
    store.set_timers("t", b"k", [first, *others])
    records.puts.clear()
    store.set_timers("t", b"k", [*others[:50], event_timer("new", 1), first])
    assert list(store.timers("t", b"k")) == [*others[:50], event_timer("new", 1), first]
    assert len(records.puts) == 2


@given(st.lists(st.sampled_from("abcd"), max_size=6), st.lists(st.sampled_from("abcd"), max_size=6))
def test_timers_come_in_the_order_of_their_setting(before: list[str], after: list[str]) -> None:
    store = stored(SortedRecords())
    for tags in (before, after):
        timers = [event_timer(tag, 1) for tag in tags]
        store.set_timers("t", b"k", timers)
        assert list(store.timers("t", b"k")) == timers


def test_nothing_is_read_that_is_not_due() -> None:
    records = SortedRecords()
    store = stored(records)
    for number in range(100):
        store.set_timers("t", b"%d" % number, [event_timer("", number)])
    records.scanned = 0
    assert list(store.due(-1, MAX_US)) == []
    assert records.scanned <= 2
    assert len(list(store.due(4, 0))) == 5


def test_appending_to_a_long_bag_does_not_write_it_again() -> None:
    records = SortedRecords()
    store = stored(records)
    bag = Bag(Cell("t", "s", b"w", b"k"))
    for data in (b"x" * 100_000, b"y", b"z"):
        records.puts.clear()
        store.append(bag, data)
    assert sum(records.puts) < 300
    records.scanned = 0
    assert read(store, bag) == b"x" * 100_000 + b"yz"
    assert records.scanned < 10


@pytest.mark.parametrize("before", [(), (b"a",), (b"x" * 1000,), (b"a", b"b", b"c")])
@pytest.mark.parametrize("after", [b"z", b"y" * 1000])
def test_a_bag_that_is_replaced_has_nothing_of_before(
    before: tuple[bytes, ...], after: bytes
) -> None:
    records, fresh = SortedRecords(), SortedRecords()
    bag = Bag(Cell("t", "s", b"w", b"k"))
    store = stored(records)
    for data in before:
        store.append(bag, data)
    store.replace(bag, after)
    stored(fresh).append(bag, after)
    assert read(store, bag) == after
    assert records.values.keys() == fresh.values.keys()
    store.append(bag, b"!")
    assert read(store, bag) == after + b"!"


def test_adding_to_nothing_is_to_replace_but_reads_nothing() -> None:
    bag, timers = Bag(Cell("t", "s", b"w", b"k")), [event_timer("a", 1), event_timer("b", 2)]
    replaced, added = SortedRecords(), SortedRecords()
    stored(replaced).set_timers("t", b"k", timers)
    stored(added).add_timers("t", b"k", timers)
    assert added.values == replaced.values
    gotten = added.gotten  # the count of a hold
    stored(added).replace(bag, b"content", is_new=True)
    assert (added.scanned, added.gotten) == (0, gotten)
    assert stored(added).whole(bag) == b"content"


@pytest.mark.parametrize("pieces", [[], [b"a"], [b"a", b"bc"], [b"a" * 300, b"b" * 5_000]])
def test_a_bag_is_read_as_a_whole(pieces: list[bytes]) -> None:
    store = StoredState(SortedRecords(), 1, count_values, page_bytes=10)
    bag = Bag(Cell("t", "s", b"w", b"k"))
    for piece in pieces:
        store.append(bag, piece)
    assert store.whole(bag) == b"".join(pieces)


def test_timers_are_read_again_after_a_change() -> None:
    store = stored(SortedRecords())
    first, second = event_timer("a", 1), event_timer("b", 2)
    store.set_timers("t", b"k", [first])
    assert store.timers("t", b"k") == (first,)
    store.set_timers("t", b"k", [first, second])
    assert store.timers("t", b"k") == (first, second)
    store.drop(b"k")
    assert store.timers("t", b"k") == ()
    store.add_timers("t", b"k", [second])
    assert store.timers("t", b"k") == (second,)


def test_the_longest_keys_have_room() -> None:
    for length in (100, 127, 128, 129, 5_000):  # around where a digest stands for a part
        records = SortedRecords()  # which refuse what LMDB does
        store = StoredState(records, (1 << 16) - 1, count_values)
        long, name = b"x" * length, "n" * length
        cells = [Cell(name, name + kind, long, long) for kind in "bml"]
        addresses: list[Address] = [
            Bag(cells[0]),
            MapValues(cells[1], long),
            ListRange(cells[2], 0, 5),
        ]
        for address in addresses:
            data = list_entry(1, b"1") if isinstance(address, ListRange) else b"1"
            for _ in range(2):
                store.append(address, data)
            assert read(store, address) == 2 * data
        assert read(store, MapKeys(cells[1])) == long
        store.set_timers(name, long, [event_timer("", 1, long)])
        assert list(store.due(1, 1)) == [(name, long)]
        store.drop(long)
        assert records.values == {}


def test_an_entry_that_is_cut_off_leaves_nothing() -> None:
    records = SortedRecords()
    place = ListRange(Cell("t", "s", b"w", b"k"), 0, 5)
    with pytest.raises(FnApiProtocolError, match="cut off"):
        stored(records).append(place, list_entry(1, b"1") + b"\x01\x05abc")
    assert records.values == {}


def test_what_is_emptied_leaves_nothing() -> None:
    records = SortedRecords()
    store = stored(records)
    cells = [Cell("t", kind, b"w", b"k") for kind in "bml"]
    map_places = [MapValues(cells[1], each) for each in (b"a", b"b")]
    whole_list = ListRange(cells[2], -5, 5)
    for number in (-4, 4):
        store.append(Bag(cells[0]), b"1")
        store.append(whole_list, list_entry(number, b"1"))
    for each in map_places:
        store.append(each, b"1")
    places: list[Address] = [Bag(cells[0]), *map_places, whole_list]
    for address in places:
        store.clear(address)
    assert records.values == {}


@pytest.mark.parametrize("count", [UNCOUNTED, (1 << 31) - 1], ids=["unknown", "too many"])
def test_entries_whose_values_cannot_be_counted(count: int) -> None:
    store = StoredState(SortedRecords(), 1, lambda cell, data: count)
    cell = Cell("t", "s", b"w", b"k")
    for _ in range(2):
        store.append(MapValues(cell, b"m"), b"v")
    assert store.get(MapValues(cell, b"m")).data == b"vv"
    with pytest.raises(FnApiProtocolError, match="number of their values"):
        store.get(MapEntries(cell))
