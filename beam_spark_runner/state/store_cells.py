"""The cells of a stage's user state, stored as sorted records of a shard.

A cell that is not empty has a *head*, the record whose key is the prefix of all its records. The
head has the kind of the cell, and a *stamp*: a number that is replaced by each change that makes
continuation tokens void. A token is valid only with its stamp, also after the store was reopened.
Stamps are random, since with a counter, an attempt that was rolled back and the next attempt would
use the same ones.
"""

import itertools
import os
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from beam_spark_runner.state import wrong_requests
from beam_spark_runner.state.backend import (
    Address,
    Bag,
    Cell,
    ListRange,
    MapEntries,
    MapKeys,
    MapValues,
    Page,
)
from beam_spark_runner.state.locked_records import SortedRecords
from beam_spark_runner.state.memory import UNCOUNTED, CountValues, count_with, list_entries
from beam_spark_runner.state.store_keys import StoreKeys, numbered, ordered, part

_BAG, _LIST, _MAP = b"b", b"l", b"m"
_KINDS: dict[type[Address], bytes] = {
    Bag: _BAG,
    ListRange: _LIST,
    MapKeys: _MAP,
    MapValues: _MAP,
    MapEntries: _MAP,
}
_BY_KEY, _BY_NUMBER, _VALUES = b"k", b"n", b"v"  # records of a map
_ASKED, _MORE_ASKED = 256, 4  # entries of a map that are loaded together: at first, then more
_SMALL = 256  # the most bytes of a bag's first piece that is stored in the head
_COUNT = struct.Struct(">i")
_STAMP_BYTES = 4  # few: they do not compress, and each delta has the stamps of all changed cells
_HEAD = struct.Struct(f">c{_STAMP_BYTES}sQ")
_ENTRY = struct.Struct(">QiQ")
_TOKEN = struct.Struct(f">{_STAMP_BYTES}sQ")  # stamp, end; the place of the next piece follows


class _Head(NamedTuple):
    kind: bytes
    stamp: bytes
    next: int  # the number of the next piece of a bag, key of a map, or entry of a list
    first: bytes = b""  # the first piece of a bag, if small: most bags have one value


class _MapEntry(NamedTuple):
    number: int  # of the key, in the order in which keys were added
    values: int  # how many values the key has
    pieces: int  # how many pieces these values are in
    first: bytes = b""  # the first piece, if small: most keys have one value, and are looked up

    @property
    def apart(self) -> range:
        """The numbers of the pieces that are not in the entry."""
        return range(bool(self.first), self.pieces)


class StoredCells:
    """The methods of ``StateBackend`` that concern cells.

    Args:
        records: The records of the shard.
        keys: The keys of the stage's records.
        count_values: See ``MemoryState``.
        page_bytes: The size at which a page ends, after the piece that reaches it.
        ask_records: Loads records of one user key, in a few round trips, before they are read.
            None: they are on this host.
    """

    def __init__(
        self,
        records: SortedRecords,
        keys: StoreKeys,
        count_values: CountValues,
        page_bytes: int,
        ask_records: Callable[[Sequence[bytes]], None] | None = None,
    ) -> None:
        self._records = records
        self._keys = keys
        self._count_values = count_values
        self._page_bytes = page_bytes
        self._ask_records = ask_records

    def get(self, address: Address, token: bytes = b"") -> Page:
        """See ``StateBackend.get``."""
        prefix = self._keys.of_cell(address.cell)
        head = self._head(prefix, address)
        if token:
            place_bytes = 16 if isinstance(address, ListRange) else 8
            if len(token) != _TOKEN.size + place_bytes:
                raise wrong_requests.unknown_token()
            stamp, end = _TOKEN.unpack_from(token)
            if head is None or head.stamp != stamp:
                raise wrong_requests.cleared_while_read()
            return self._page(address, prefix, head, token[_TOKEN.size :], end)
        if head is None:
            return Page(b"", b"")
        end = head.next
        if isinstance(address, MapValues):
            entry = self._entry(prefix, address.map_key)
            end = 0 if entry is None else entry.pieces
        return self._page(address, prefix, head, b"", end)

    def whole(self, bag: Bag) -> bytes:
        """Return the whole content of a bag; a small one is read faster than by ``get``."""
        prefix = self._keys.of_cell(bag.cell)
        head = self._head(prefix, bag)
        if head is None or _is_in_head(head):
            return b"" if head is None else head.first
        return b"".join(piece for _, piece in self._pieces(bag, prefix, head, b"", head.next))

    def append(self, address: Address, data: bytes) -> None:
        """See ``StateBackend.append``."""
        if isinstance(address, MapKeys | MapEntries):
            raise wrong_requests.cannot_append(address)
        if not (data or isinstance(address, MapValues)):
            return
        prefix = self._keys.of_cell(address.cell)
        head = self._head(prefix, address)
        match address:
            case Bag():
                self._append_to_bag(prefix, head, data)
            case MapValues(cell, map_key):
                self._append_to_map(prefix, head, map_key, data, self._count_values(cell, data))
            case ListRange():
                entries = list(list_entries(data))  # parsed first: if one is wrong, none is added
                first = 0 if head is None else head.next
                for number, (sort_key, entry) in enumerate(entries, first):
                    self._records.put(prefix + ordered(sort_key) + numbered(number), entry)
                # A reader may have passed the place of a new entry, so tokens become void.
                self._put_head(prefix, _Head(_LIST, _new_stamp(), first + len(entries)))

    def clear(self, address: Address) -> None:
        """See ``StateBackend.clear``. A cell that becomes empty has no records."""
        if isinstance(address, MapEntries):
            raise wrong_requests.cannot_clear(address)
        prefix = self._keys.of_cell(address.cell)
        head = self._head(prefix, address)
        if head is None:
            return
        match address:
            case Bag() if _is_in_head(head):
                self._records.delete(prefix)
            case Bag() | MapKeys():
                self._records.delete_prefix(prefix)
            case MapValues(_, map_key):
                entry = self._entry(prefix, map_key)
                if entry is not None:
                    self._records.delete(prefix + _BY_KEY + part(map_key))
                    self._records.delete(prefix + _BY_NUMBER + numbered(entry.number))
                    self._delete_pieces(prefix, entry)
                self._was_changed(prefix, head)
            case ListRange(_, start, end):
                for place, _ in self._between(prefix, ordered(start), ordered(end)):
                    self._records.delete(prefix + place)
                self._was_changed(prefix, head)

    def replace(self, bag: Bag, data: bytes, *, is_new: bool) -> None:
        """Replace the content of a bag by one piece that is not empty.

        Args:
            bag: The bag.
            data: Its new content.
            is_new: Whether the bag is known to be empty.
        """
        prefix = self._keys.of_cell(bag.cell)
        if not is_new:
            head = self._head(prefix, bag)
            if head is not None and not _is_in_head(head):
                self._records.delete_prefix(prefix)
        self._append_to_bag(prefix, None, data)

    def drop(self, key: bytes) -> None:
        """Remove all cells of a key."""
        self._records.delete_prefix(self._keys.of_key(key))

    def drop_window(self, transform: str, window: bytes, key: bytes) -> None:
        """See ``StateBackend.drop_window``."""
        self._records.delete_prefix(self._keys.of_window(transform, window, key))

    def _head(self, prefix: bytes, address: Address) -> _Head | None:
        """Return the head of a cell; None: the cell is empty.

        Raises:
            FnApiProtocolError: The cell is of another kind than the address.
        """
        coded = self._records.get(prefix)
        if coded is None:
            return None
        kind, stamp, following = _HEAD.unpack_from(coded)
        head = _Head(kind, stamp, following, coded[_HEAD.size :])
        if head.kind != _KINDS[type(address)]:
            raise wrong_requests.of_another_kind(address.cell)
        return head

    def _put_head(self, prefix: bytes, head: _Head) -> None:
        self._records.put(prefix, _HEAD.pack(head.kind, head.stamp, head.next) + head.first)

    def _was_changed(self, prefix: bytes, head: _Head) -> None:
        """Make tokens void after a removal from a cell; remove the head of an empty cell."""
        after_the_head = self._records.scan(prefix, prefix + b"\0")
        if next(after_the_head, None) is None:
            self._records.delete(prefix)
        else:
            self._put_head(prefix, head._replace(stamp=_new_stamp()))

    def _append_to_bag(self, prefix: bytes, head: _Head | None, data: bytes) -> None:
        # The head is rewritten with each piece, so it holds no large piece. A piece in the head
        # has number 0; all others have separate records, from number 1 on.
        if head is None:
            if len(data) <= _SMALL:
                self._put_head(prefix, _Head(_BAG, _new_stamp(), 1, data))
                return
            head = _Head(_BAG, _new_stamp(), 1)
        self._records.put(prefix + numbered(head.next), data)
        self._put_head(prefix, head._replace(next=head.next + 1))

    def _append_to_map(
        self, prefix: bytes, head: _Head | None, map_key: bytes, data: bytes, count: int
    ) -> None:
        entry = self._entry(prefix, map_key)
        if entry is not None and not data:
            return
        if entry is None:
            if head is None:
                head = _Head(_MAP, _new_stamp(), 0)
            entry = _MapEntry(head.next, 0, 0)
            self._put_head(prefix, head._replace(next=head.next + 1))
            self._records.put(prefix + _BY_NUMBER + numbered(entry.number), map_key)
        first, values = entry.first, count_with(entry.values, count)
        if data and not entry.pieces and len(data) <= _SMALL:
            first = data
        elif data:
            pieces = prefix + _VALUES + numbered(entry.number)
            self._records.put(pieces + numbered(entry.pieces), data)
        new = _MapEntry(entry.number, values, entry.pieces + bool(data), first)
        self._put_entry(prefix, map_key, new)

    def replace_values(self, address: MapValues, data: bytes) -> None:
        """Replace the values of a key of a map by others, at least one; or add the key.

        Args:
            address: The values.
            data: The new values, encoded, with at least one byte.
        """
        prefix = self._keys.of_cell(address.cell)
        head = self._head(prefix, address)
        entry = None if head is None else self._entry(prefix, address.map_key)
        count = self._count_values(address.cell, data)
        if head is None or entry is None:
            self._append_to_map(prefix, head, address.map_key, data, count)
            return
        self._delete_pieces(prefix, entry)
        is_small = len(data) <= _SMALL
        if not is_small:
            self._records.put(prefix + _VALUES + numbered(entry.number) + numbered(0), data)
        new = _MapEntry(entry.number, count, 1, data if is_small else b"")
        self._put_entry(prefix, address.map_key, new)
        self._put_head(prefix, head._replace(stamp=_new_stamp()))

    def _delete_pieces(self, prefix: bytes, entry: _MapEntry) -> None:
        for piece in entry.apart:
            self._records.delete(prefix + _VALUES + numbered(entry.number) + numbered(piece))

    def _put_entry(self, prefix: bytes, map_key: bytes, entry: _MapEntry) -> None:
        coded = _ENTRY.pack(entry.number, entry.values, entry.pieces) + entry.first
        self._records.put(prefix + _BY_KEY + part(map_key), coded)

    def _entry(self, prefix: bytes, map_key: bytes) -> _MapEntry | None:
        coded = self._records.get(prefix + _BY_KEY + part(map_key))
        if coded is None:
            return None
        number, values, pieces = _ENTRY.unpack_from(coded)
        return _MapEntry(number, values, pieces, coded[_ENTRY.size :])

    def _page(self, address: Address, prefix: bytes, head: _Head, start: bytes, end: int) -> Page:
        data: list[bytes] = []
        room = self._page_bytes
        pieces = self._pieces(address, prefix, head, start, end)
        if isinstance(address, MapEntries) and self._ask_records is not None:
            pieces = self._asked(prefix, pieces, self._ask_records)
        for place, piece in pieces:
            if room <= 0:
                return Page(b"".join(data), _TOKEN.pack(head.stamp, end) + place)
            if isinstance(address, MapEntries):
                piece = self._whole_entry(prefix, piece, address.cell)
            data.append(piece)
            room -= len(piece)
        return Page(data[0] if len(data) == 1 else b"".join(data), b"")

    def _pieces(
        self, address: Address, prefix: bytes, head: _Head, start: bytes, end: int
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pieces at an address, each with its place.

        Args:
            address: The address to read.
            prefix: The prefix of the cell's records.
            head: The head of the cell.
            start: The place of the first piece; empty: from the beginning.
            end: The number of the first piece that was added after the read began. Lists
                ignore it, because an append to a list makes tokens void.
        """
        match address:
            case Bag():
                first = numbered(0)
                if head.first and start <= first:
                    yield first, head.first
                if end > 1:
                    yield from self._between(prefix, max(start, numbered(1)), numbered(end))
            case MapKeys() | MapEntries():
                yield from self._between(prefix + _BY_NUMBER, start, numbered(end))
            case MapValues(_, map_key):
                entry = self._entry(prefix, map_key)
                if entry is None:
                    return
                if entry.first and start <= numbered(0):
                    yield numbered(0), entry.first
                if entry.apart:
                    pieces = prefix + _VALUES + numbered(entry.number)
                    after_first = max(start, numbered(entry.apart.start))
                    yield from self._between(pieces, after_first, numbered(end))
            case ListRange(_, first_key, end_key):
                yield from self._between(prefix, start or ordered(first_key), ordered(end_key))

    def _between(self, prefix: bytes, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield records as what follows the prefix, in ``[start, end)``, and the value."""
        for record, value in self._records.scan(prefix, prefix + start):
            place = record[len(prefix) :]
            if place >= end:
                return
            yield place, value

    def _asked(
        self,
        prefix: bytes,
        keys: Iterator[tuple[bytes, bytes]],
        ask: Callable[[Sequence[bytes]], None],
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys of a map with their places, once their entries are loaded, many together."""
        count = _ASKED
        while some := list(itertools.islice(keys, count)):
            ask([prefix + _BY_KEY + part(map_key) for _, map_key in some])
            entries = (self._entry(prefix, map_key) for _, map_key in some)
            values = prefix + _VALUES
            ask(
                [
                    values + numbered(entry.number) + numbered(piece)
                    for entry in entries
                    if entry is not None
                    for piece in entry.apart
                ]
            )
            yield from some
            count *= _MORE_ASKED

    def _whole_entry(self, prefix: bytes, map_key: bytes, cell: Cell) -> bytes:
        """Encode KV(key, iterable of its values); the iterable begins with their number."""
        entry = self._entry(prefix, map_key)
        assert entry is not None  # the key is listed
        if entry.values == UNCOUNTED:
            raise wrong_requests.cannot_count(cell)
        whole = [map_key, _COUNT.pack(entry.values), entry.first]
        if entry.apart:
            values = prefix + _VALUES + numbered(entry.number)
            pieces = (self._records.get(values + numbered(piece)) for piece in entry.apart)
            whole += (piece for piece in pieces if piece is not None)
        return b"".join(whole)


def _is_in_head(head: _Head) -> bool:
    """Whether the head of a bag is its only record."""
    return head.next == 1 and bool(head.first)


def _new_stamp() -> bytes:
    return _STAMPS.randbytes(_STAMP_BYTES)


# Not the generator of the module: user code may give that one the same seed for each bundle.
_STAMPS = random.Random()
os.register_at_fork(after_in_child=_STAMPS.seed)
