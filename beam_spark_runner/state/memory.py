"""User state and timers in memory and, beyond a limit, in a file."""

import bisect
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from beam_spark_runner.core.errors import FnApiProtocolError, InvariantError
from beam_spark_runner.portable.bounded import BoundedReader, MalformedBytesError
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
    StoredTimer,
)
from beam_spark_runner.state.spill import SpillFile

MEMORY_LIMIT_BYTES = 64 << 20
PAGE_BYTES = 1 << 20
_PIECE_BYTES = 100  # the memory that a piece takes in addition to its bytes
_TOKEN = struct.Struct(">qqq")  # the cell's generation, the next piece, the end
_COUNT = struct.Struct(">i")

CountValues: TypeAlias = Callable[[Cell, bytes], int]
"""Returns how many values a concatenation of encoded multimap values has, or ``UNCOUNTED``."""
UNCOUNTED = -1
"""The number of values whose coder the runner does not know."""
_MAX_VALUES = (1 << 31) - 1


def count_with(count: int, more: int) -> int:
    """Add numbers of values, of which one may be ``UNCOUNTED``, or more than an iterable has."""
    is_known = UNCOUNTED not in (count, more) and count + more <= _MAX_VALUES
    return count + more if is_known else UNCOUNTED


class _Spilled(NamedTuple):
    start: int
    length: int


_Piece: TypeAlias = bytes | _Spilled


class _Bag:
    def __init__(self) -> None:
        self.pieces: list[_Piece] = []
        self.generation = 0  # replaced whenever the positions of pieces become void


class _Map:
    def __init__(self) -> None:
        self.values: dict[bytes, list[_Piece]] = {}
        self.counts: dict[bytes, int] = {}
        self.generation = 0


class _List:
    """Values by sort key; values of one sort key are in the order of arrival."""

    def __init__(self) -> None:
        self.values: dict[int, list[_Piece]] = {}
        self.generation = 0
        self._order: list[int] | None = None

    def append(self, sort_key: int, piece: _Piece) -> None:
        if sort_key not in self.values:
            self._order = None
        self.values.setdefault(sort_key, []).append(piece)

    def sort_keys(self, start: int, end: int) -> list[int]:
        if self._order is None:
            self._order = sorted(self.values)
        first = bisect.bisect_left(self._order, start)
        return self._order[first : bisect.bisect_left(self._order, end, first)]

    def remove(self, start: int, end: int) -> Iterator[_Piece]:
        for sort_key in self.sort_keys(start, end):
            yield from self.values.pop(sort_key)
        self._order = None


_Kind = TypeVar("_Kind", _Bag, _Map, _List)


class MemoryState:
    """See ``StateBackend``. Data that exceeds the memory limit is written to a file.

    Args:
        count_values: Counts the values in data for a multimap, because ``MapEntries`` begin with
            their number.
        limit_bytes: The most bytes of state in memory.
        page_bytes: The size at which a page ends, after the piece (one append) that reaches it.
    """

    def __init__(
        self,
        count_values: CountValues,
        *,
        limit_bytes: int = MEMORY_LIMIT_BYTES,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        self._count_values = count_values
        self._page_bytes = page_bytes
        self._pieces = _Pieces(limit_bytes)
        self._keys: dict[bytes, dict[Cell, _Bag | _Map | _List]] = {}
        self._timers: dict[bytes, dict[str, Sequence[StoredTimer]]] = {}  # by key, transform
        # Shared by all cells: a cell that is dropped and created again gets a new generation.
        self._generations = itertools.count(1)
        self.version = 0

    def get(self, address: Address, token: bytes = b"") -> Page:
        """See ``StateBackend.get``."""
        match address:
            case Bag(cell):
                bag = self._find(cell, _Bag)
                return self._page(bag.pieces, bag.generation, token)
            case ListRange(cell, start, end):
                values = self._find(cell, _List)
                pieces = [
                    piece
                    for sort_key in values.sort_keys(start, end)
                    for piece in values.values[sort_key]
                ]
                return self._page(pieces, values.generation, token)
            case MapKeys(cell):
                multimap = self._find(cell, _Map)
                return self._page(list(multimap.values), multimap.generation, token)
            case MapValues(cell, map_key):
                multimap = self._find(cell, _Map)
                return self._page(multimap.values.get(map_key, ()), multimap.generation, token)
            case MapEntries(cell):
                multimap = self._find(cell, _Map)
                if UNCOUNTED in multimap.counts.values():
                    raise wrong_requests.cannot_count(cell)
                return self._page(list(multimap.values), multimap.generation, token, multimap)

    def append(self, address: Address, data: bytes) -> None:
        """See ``StateBackend.append``."""
        match address:
            case MapKeys() | MapEntries():
                raise wrong_requests.cannot_append(address)
            case MapValues(cell, map_key) if not data:
                multimap = self._make(cell, _Map)
                multimap.values.setdefault(map_key, [])
                multimap.counts.setdefault(map_key, 0)
            case _ if not data:
                pass
            case Bag(cell):
                self._make(cell, _Bag).pieces.append(self._pieces.keep(data))
            case MapValues(cell, map_key):
                multimap = self._make(cell, _Map)
                count = self._count_values(cell, data)
                multimap.values.setdefault(map_key, []).append(self._pieces.keep(data))
                multimap.counts[map_key] = count_with(multimap.counts.get(map_key, 0), count)
            case ListRange(cell):
                values = self._make(cell, _List)
                values.generation = next(self._generations)
                for sort_key, entry in list_entries(data):
                    values.append(sort_key, self._pieces.keep(entry))

    def clear(self, address: Address) -> None:
        """See ``StateBackend.clear``."""
        match address:
            case Bag(cell):
                bag = self._find(cell, _Bag)
                self._pieces.free(bag.pieces)
                bag.pieces = []
                bag.generation = next(self._generations)
            case MapKeys(cell):
                multimap = self._find(cell, _Map)
                for pieces in multimap.values.values():
                    self._pieces.free(pieces)
                multimap.values, multimap.counts = {}, {}
                multimap.generation = next(self._generations)
            case MapValues(cell, map_key):
                multimap = self._find(cell, _Map)
                self._pieces.free(multimap.values.pop(map_key, ()))
                multimap.counts.pop(map_key, None)
                multimap.generation = next(self._generations)
            case ListRange(cell, start, end):
                values = self._find(cell, _List)
                self._pieces.free(values.remove(start, end))
                values.generation = next(self._generations)
            case MapEntries():
                raise wrong_requests.cannot_clear(address)

    def replace_values(self, address: MapValues, data: bytes) -> None:
        """See ``StateBackend.replace_values``."""
        self.clear(address)
        self.append(address, data)

    def timers(self, transform: str, key: bytes) -> Sequence[StoredTimer]:
        """See ``StateBackend.timers``."""
        return self._timers.get(key, {}).get(transform, ())

    def set_timers(self, transform: str, key: bytes, timers: Sequence[StoredTimer]) -> None:
        """See ``StateBackend.set_timers``."""
        if timers or key in self._timers:
            self._timers.setdefault(key, {})[transform] = tuple(timers)

    def seal(self, version: int) -> None:
        """See ``StateBackend.seal``. Earlier versions cannot be read any more."""
        if version <= self.version:
            raise InvariantError(f"version {version} was sealed after {self.version}")
        self.version = version

    def drop(self, key: bytes) -> None:
        """See ``StateBackend.drop``."""
        self._timers.pop(key, None)
        for cell in self._keys.pop(key, {}).values():
            self._free(cell)

    def drop_window(self, transform: str, window: bytes, key: bytes) -> None:
        """See ``StateBackend.drop_window``."""
        cells = self._keys.get(key, {})
        for cell in [
            candidate
            for candidate in cells
            if (candidate.transform, candidate.window) == (transform, window)
        ]:
            self._free(cells.pop(cell))

    def _free(self, cell: _Bag | _Map | _List) -> None:
        match cell:
            case _Bag():
                self._pieces.free(cell.pieces)
            case _Map() | _List():
                for pieces in cell.values.values():
                    self._pieces.free(pieces)

    def _find(self, cell: Cell, kind: type[_Kind]) -> _Kind:
        """Return the cell; if nothing was written yet, an empty one that is not stored."""
        return self._checked(self._keys.get(cell.key, {}).get(cell), cell, kind) or kind()

    def _make(self, cell: Cell, kind: type[_Kind]) -> _Kind:
        cells = self._keys.setdefault(cell.key, {})
        content = self._checked(cells.get(cell), cell, kind)
        if content is None:
            content = cells[cell] = kind()
            content.generation = next(self._generations)
        return content

    def _checked(
        self, content: "_Bag | _Map | _List | None", cell: Cell, kind: type[_Kind]
    ) -> _Kind | None:
        if content is None or isinstance(content, kind):
            return content
        raise wrong_requests.of_another_kind(cell)

    def _page(
        self,
        pieces: "list[_Piece] | list[bytes] | tuple[()]",
        generation: int,
        token: bytes,
        multimap: _Map | None = None,
    ) -> Page:
        position, end = 0, len(pieces)
        if token:
            if len(token) != _TOKEN.size:
                raise wrong_requests.unknown_token()
            read_from, position, end = _TOKEN.unpack(token)
            if read_from != generation:
                raise wrong_requests.cleared_while_read()
            if not 0 <= position <= end <= len(pieces):
                raise wrong_requests.unknown_token()
        data: list[bytes] = []
        room = self._page_bytes
        while position < end and room > 0:
            piece = self._pieces.read(pieces[position])
            if multimap is not None:
                piece = self._entry(multimap, piece)
            data.append(piece)
            room -= len(piece)
            position += 1
        more = _TOKEN.pack(generation, position, end) if position < end else b""
        return Page(data[0] if len(data) == 1 else b"".join(data), more)

    def _entry(self, multimap: _Map, map_key: bytes) -> bytes:
        """Encode KV(key, iterable of its values); the iterable begins with their number."""
        count = _COUNT.pack(multimap.counts[map_key])
        values = map(self._pieces.read, multimap.values[map_key])
        return b"".join([map_key, count, *values])


class _Pieces:
    """The pieces of all cells: in memory, and beyond the limit in a file."""

    def __init__(self, limit_bytes: int) -> None:
        self._room = limit_bytes
        self._file = SpillFile()
        self._spilled = 0  # pieces in the file that are not free

    def keep(self, data: bytes) -> _Piece:
        if self._room < len(data):
            self._spilled += 1
            return _Spilled(self._file.append(data), len(data))
        self._room -= len(data) + _PIECE_BYTES
        return data

    def read(self, piece: _Piece) -> bytes:
        return piece if isinstance(piece, bytes) else self._file.read(*piece)

    def free(self, pieces: Iterable[_Piece]) -> None:
        """Free pieces. The file is closed once none of its pieces is needed."""
        for piece in pieces:
            if isinstance(piece, bytes):
                self._room += len(piece) + _PIECE_BYTES
            else:
                self._spilled -= 1
                if not self._spilled:
                    self._file.close()


def list_entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Split the concatenated entries of an ordered list.

    Yields:
        The sort key and the whole encoded entry, a KV of it and a length-prefixed value.

    Raises:
        FnApiProtocolError: An entry is cut off or malformed.

    Source: proto StateAppendRequest, OrderedListEntry.
    """
    reader = BoundedReader(data)
    while reader.bytes_left:
        start = len(data) - reader.bytes_left
        try:
            sort_key, _ = reader.signed(), reader.prefixed()
        except MalformedBytesError as error:
            raise FnApiProtocolError(f"an entry of an ordered list is wrong: {error}") from error
        yield sort_key, data[start : len(data) - reader.bytes_left]
