"""State in memory reads as it was written, in whatever pages, spilled or not."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder, VarIntCoder
from apache_beam.coders.coders import LengthPrefixCoder
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from beam_spark_runner.core.errors import FnApiProtocolError, InvariantError
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import (
    Address,
    Bag,
    Cell,
    ListRange,
    MapEntries,
    MapKeys,
    MapValues,
    StoredTimer,
)
from beam_spark_runner.state.memory import MemoryState, list_entries

VALUES = BytesCoder().get_impl()
ENTRIES = TupleCoder([BytesCoder(), IterableCoder(BytesCoder())]).get_impl()
LISTED = TupleCoder([VarIntCoder(), LengthPrefixCoder(BytesCoder())]).get_impl()
FIRST, LAST = -(1 << 63), (1 << 63) - 1


def cell(name: str = "state", key: bytes = b"key", window: bytes = b"") -> Cell:
    return Cell("step", name, window, key)


def count_values(where: Cell, data: bytes) -> int:
    return sum(1 for _ in VALUES.decode_all(data))


def state(limit_bytes: int = 1 << 20, page_bytes: int = 1 << 20) -> MemoryState:
    return MemoryState(count_values, limit_bytes=limit_bytes, page_bytes=page_bytes)


def coded(values: Iterable[Any], coder: Any = VALUES) -> bytes:
    return b"".join(map(coder.encode_nested, values))


def pages(backend: MemoryState, address: Address) -> Iterator[bytes]:
    page = backend.get(address)
    yield page.data
    while page.token:
        page = backend.get(address, page.token)
        yield page.data


def read(backend: MemoryState, address: Address, coder: Any = VALUES) -> list[Any]:
    return [value for data in pages(backend, address) for value in coder.decode_all(data)]


def test_nothing_written_is_nothing_read() -> None:
    backend = state()
    for address in (
        Bag(cell()),
        MapKeys(cell()),
        MapValues(cell(), b"m"),
        MapEntries(cell()),
        ListRange(cell(), FIRST, LAST),
    ):
        assert list(pages(backend, address)) == [b""]
        if not isinstance(address, MapEntries):
            backend.clear(address)


def test_a_key_without_bytes_of_values_is_listed_until_it_is_cleared() -> None:
    """Elements of Java's SetState are keys of a multimap with values of VoidCoder."""
    backend = state()
    for map_key in (b"m", b"n", b"m"):
        backend.append(MapValues(cell(), coded([map_key])), b"")
    assert read(backend, MapKeys(cell())) == [b"m", b"n"]
    assert read(backend, MapEntries(cell()), ENTRIES) == [(b"m", []), (b"n", [])]
    backend.append(MapValues(cell(), coded([b"n"])), coded([b"v"]))
    backend.clear(MapValues(cell(), coded([b"m"])))
    assert read(backend, MapEntries(cell()), ENTRIES) == [(b"n", [b"v"])]
    backend.clear(MapKeys(cell()))
    assert read(backend, MapKeys(cell())) == []


def test_a_bag_comes_in_pages_of_whole_elements() -> None:
    backend = state(page_bytes=100)
    values = [bytes([n]) * 30 for n in range(50)]
    for value in values:
        backend.append(Bag(cell()), coded([value]))
    found = list(pages(backend, Bag(cell())))
    assert len(found) == 13
    assert max(map(len, found)) < 100 + 31
    assert [value for data in found for value in VALUES.decode_all(data)] == values


def test_a_reader_sees_what_was_there_when_it_began() -> None:
    backend = state(page_bytes=1)
    bag = Bag(cell())
    for value in (b"a", b"b"):
        backend.append(bag, coded([value]))
    first = backend.get(bag)
    backend.append(bag, coded([b"c"]))
    second = backend.get(bag, first.token)
    assert (second.data, second.token) == (coded([b"b"]), b"")
    assert read(backend, bag) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("address", "clears"),
    [
        (Bag(cell()), Bag(cell())),
        (MapValues(cell(), b"m"), MapKeys(cell())),
        (ListRange(cell(), FIRST, LAST), ListRange(cell(), 7, 8)),
    ],
)
def test_pages_of_what_was_cleared_meanwhile(address: Address, clears: Address) -> None:
    backend = state(page_bytes=1)
    is_list = isinstance(address, ListRange)
    for number in (1, 2):
        data = coded([(number, b"v")], LISTED) if is_list else coded([b"v"])
        backend.append(address, data)
    page = backend.get(address)
    backend.clear(clears)
    with pytest.raises(FnApiProtocolError, match="cleared while the SDK read it"):
        backend.get(address, page.token)


@pytest.mark.parametrize("address", [Bag(cell()), MapValues(cell(), b"m"), MapKeys(cell())])
@pytest.mark.parametrize("is_made_anew", [True, False])
def test_pages_of_what_was_dropped_meanwhile(address: Address, *, is_made_anew: bool) -> None:
    for whole_key in (True, False):
        backend = state(page_bytes=1)
        places = [address] * 2
        if isinstance(address, MapKeys):
            places = [MapValues(cell(), b"m"), MapValues(cell(), b"n")]
        for place in places:
            backend.append(place, coded([b"v"]))
        page = backend.get(address)
        if whole_key:
            backend.drop(b"key")
        else:
            backend.drop_window("step", b"", b"key")
        for place in places if is_made_anew else ():
            backend.append(place, coded([b"w"]))
        with pytest.raises(FnApiProtocolError, match="cleared while the SDK read it"):
            backend.get(address, page.token)


def test_a_window_of_a_transform_is_dropped() -> None:
    backend = state()
    kept = [
        cell("seen", b"key", b"other window"),
        cell("seen", b"other key", b"window"),
        Cell("other step", "seen", b"window", b"key"),
    ]
    dropped = [cell(name, b"key", b"window") for name in ("seen", "also seen")]
    for each in kept + dropped:
        backend.append(Bag(each), coded([b"v"]))
    backend.set_timers("step", b"key", [timer(1)])
    backend.drop_window("step", b"window", b"key")
    backend.drop_window("step", b"window", b"key that has nothing")
    assert [read(backend, Bag(each)) for each in kept] == [[b"v"]] * 3
    assert [read(backend, Bag(each)) for each in dropped] == [[]] * 2
    assert list(backend.timers("step", b"key")) == [timer(1)]
    assert not backend.timers("step", b"other key")


def test_a_token_that_is_none() -> None:
    backend = state()
    backend.append(Bag(cell()), coded([b"v"]))
    with pytest.raises(FnApiProtocolError, match="token"):
        backend.get(Bag(cell()), b"next")


@pytest.mark.parametrize(("position", "end"), [(-1, 1), (-(1 << 63), 0), (0, 5), (2, 1)])
def test_a_token_that_names_other_pieces(position: int, end: int) -> None:
    backend = state(page_bytes=1)
    backend.append(Bag(cell()), coded([b"v"]))
    backend.append(Bag(cell()), coded([b"w"]))
    more = backend.get(Bag(cell())).token
    token = more[:8] + position.to_bytes(8, "big", signed=True) + end.to_bytes(8, "big")
    with pytest.raises(FnApiProtocolError, match="token"):
        backend.get(Bag(cell()), token)


def test_a_state_of_one_kind_is_not_one_of_another() -> None:
    backend = state()
    backend.append(Bag(cell("seen")), coded([b"v"]))
    with pytest.raises(FnApiProtocolError, match="the state seen was written as another kind"):
        backend.get(MapKeys(cell("seen")))
    with pytest.raises(FnApiProtocolError, match="the state seen was written as another kind"):
        backend.append(ListRange(cell("seen"), 0, 0), coded([(1, b"v")], LISTED))


def test_what_can_only_be_read() -> None:
    backend = state()
    for address in (MapKeys(cell()), MapEntries(cell())):
        with pytest.raises(FnApiProtocolError, match="cannot append to the"):
            backend.append(address, coded([b"v"]))
    with pytest.raises(FnApiProtocolError, match="only its MapKeys"):
        backend.clear(MapEntries(cell()))


def test_windows_states_and_keys_are_apart() -> None:
    backend = state()
    cells = [
        cell(name, key, window) for name in "st" for key in (b"1", b"2") for window in (b"", b"w")
    ]
    for number, each in enumerate(cells):
        backend.append(Bag(each), coded([bytes([number])]))
    backend.clear(Bag(cells[0]))
    backend.drop(b"2")
    left = {0: [], 1: [b"\x01"], 4: [b"\x04"], 5: [b"\x05"]}
    for number, each in enumerate(cells):
        assert read(backend, Bag(each)) == left.get(number, [])


def test_memory_holds_its_limit_and_the_file_is_given_back() -> None:
    backend = state(limit_bytes=10_000)
    bag = Bag(cell())
    values = [bytes([n % 256]) * 1000 for n in range(100)]
    for value in values:
        backend.append(bag, coded([value]))
    stored = backend._keys[b"key"][bag.cell].pieces  # type: ignore[union-attr]
    assert sum(len(piece) for piece in stored if isinstance(piece, bytes)) <= 10_000
    assert read(backend, bag) == values
    assert backend._pieces._file._file is not None
    backend.drop(b"key")
    assert backend._pieces._file._file is None
    assert backend._pieces._room == 10_000
    backend.append(bag, coded(values))
    assert read(backend, bag) == values


@pytest.mark.parametrize(
    "data", [b"\x80", b"\x01", b"\x01\x05abc"], ids=["sort key", "length", "value"]
)
def test_entries_of_a_list_that_are_cut_off(data: bytes) -> None:
    with pytest.raises(FnApiProtocolError, match="cut off"):
        list(list_entries(data))


@given(st.lists(st.tuples(st.integers(FIRST, LAST), st.binary())))
def test_entries_of_a_list_are_taken_apart(entries: list[tuple[int, bytes]]) -> None:
    found = list(list_entries(coded(entries, LISTED)))
    assert [key for key, _ in found] == [key for key, _ in entries]
    assert b"".join(entry for _, entry in found) == coded(entries, LISTED)


NAMES = st.sampled_from(["one", "two"])
MAP_KEYS = st.sampled_from([b"", b"m", b"n"])
SORT_KEYS = st.integers(-4, 4) | st.sampled_from([FIRST, LAST - 1])
BINARIES = st.lists(st.binary(max_size=12), max_size=4)


class AsWritten(RuleBasedStateMachine):
    """The same operations on the backend and on plain lists and dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.backend = state(limit_bytes=300, page_bytes=20)
        self.bags: dict[str, list[bytes]] = {"one": [], "two": []}
        self.maps: dict[str, dict[bytes, list[bytes]]] = {"one": {}, "two": {}}
        self.lists: dict[str, list[tuple[int, bytes]]] = {"one": [], "two": []}

    @rule(name=NAMES, values=BINARIES)
    def append_to_bag(self, name: str, values: list[bytes]) -> None:
        self.backend.append(Bag(cell("bag", name.encode())), coded(values))
        self.bags[name] += values

    @rule(name=NAMES)
    def clear_bag(self, name: str) -> None:
        self.backend.clear(Bag(cell("bag", name.encode())))
        self.bags[name] = []

    @rule(name=NAMES, map_key=MAP_KEYS, values=BINARIES)
    def append_to_map(self, name: str, map_key: bytes, values: list[bytes]) -> None:
        address = MapValues(cell("map", name.encode()), VALUES.encode_nested(map_key))
        self.backend.append(address, coded(values))
        self.maps[name].setdefault(map_key, []).extend(values)

    @rule(name=NAMES, map_key=MAP_KEYS)
    def clear_map_key(self, name: str, map_key: bytes) -> None:
        address = MapValues(cell("map", name.encode()), VALUES.encode_nested(map_key))
        self.backend.clear(address)
        self.maps[name].pop(map_key, None)

    @rule(name=NAMES)
    def clear_map(self, name: str) -> None:
        self.backend.clear(MapKeys(cell("map", name.encode())))
        self.maps[name] = {}

    @rule(name=NAMES, entries=st.lists(st.tuples(SORT_KEYS, st.binary(max_size=12)), max_size=4))
    def append_to_list(self, name: str, entries: list[tuple[int, bytes]]) -> None:
        address = ListRange(cell("list", name.encode()), 0, 0)
        self.backend.append(address, coded(entries, LISTED))
        self.lists[name] += entries

    @rule(name=NAMES, start=SORT_KEYS, end=SORT_KEYS)
    def clear_range(self, name: str, start: int, end: int) -> None:
        self.backend.clear(ListRange(cell("list", name.encode()), start, end))
        self.lists[name] = [each for each in self.lists[name] if not start <= each[0] < end]

    @rule(name=NAMES, start=SORT_KEYS, end=SORT_KEYS)
    def read_range(self, name: str, start: int, end: int) -> None:
        found = read(self.backend, ListRange(cell("list", name.encode()), start, end), LISTED)
        expected = [each for each in self.lists[name] if start <= each[0] < end]
        assert found == sorted(expected, key=lambda each: each[0])

    @rule(name=NAMES)
    def drop(self, name: str) -> None:
        self.backend.drop(name.encode())
        self.bags[name], self.maps[name], self.lists[name] = [], {}, []

    def teardown(self) -> None:
        for name in ("one", "two"):
            self.backend.drop(name.encode())

    @invariant()
    def reads_as_written(self) -> None:
        for name in ("one", "two"):
            key = name.encode()
            assert read(self.backend, Bag(cell("bag", key))) == self.bags[name]
            where = cell("map", key)
            assert read(self.backend, MapKeys(where)) == list(self.maps[name])
            entries = [(k, list(v)) for k, v in read(self.backend, MapEntries(where), ENTRIES)]
            assert entries == list(self.maps[name].items())
            for map_key, values in self.maps[name].items():
                address = MapValues(where, VALUES.encode_nested(map_key))
                assert read(self.backend, address) == values
        kept = not any(self.bags.values()) and not any(self.maps.values())
        if kept and not any(self.lists.values()):
            assert self.backend._pieces._room == 300
            assert self.backend._pieces._spilled == 0


TestAsWritten = AsWritten.TestCase


def timer(fires_us: int) -> StoredTimer:
    return StoredTimer("family", "", b"window", Domain.EVENT_TIME, fires_us, fires_us, b"pane")


def test_timers_are_those_that_were_stored_last() -> None:
    backend = state()
    assert not backend.timers("step", b"key")
    backend.set_timers("step", b"key", [timer(2), timer(1)])
    backend.set_timers("other step", b"key", [timer(3)])
    assert list(backend.timers("step", b"key")) == [timer(2), timer(1)]
    assert not backend.timers("step", b"other key")
    backend.set_timers("step", b"key", [])
    assert not backend.timers("step", b"key")
    assert list(backend.timers("other step", b"key")) == [timer(3)]


def test_a_key_that_is_dropped_has_no_timers() -> None:
    backend = state()
    for key in (b"key", b"other key"):
        backend.set_timers("step", key, [timer(1)])
    backend.drop(b"key")
    assert not backend.timers("step", b"key")
    assert backend.timers("step", b"other key")


def test_versions_are_sealed_in_their_order() -> None:
    backend = state()
    assert backend.version == 0
    backend.append(Bag(cell()), coded([b"a"]))
    backend.seal(3)
    assert backend.version == 3
    assert read(backend, Bag(cell())) == [b"a"]
    with pytest.raises(InvariantError, match="version 3 was sealed after 3"):
        backend.seal(3)
