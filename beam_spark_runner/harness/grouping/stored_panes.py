"""Stores the values of panes for a later epoch.

A few small values are part of their window's state, which is written whenever it changes. All
others are in bags, which are appended to, never rewritten.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from apache_beam.coders import BytesCoder, Coder
from apache_beam.coders.coders import LengthPrefixCoder

from beam_spark_runner._generated.store_pb2 import PaneState
from beam_spark_runner.state.backend import Bag, Cell, StateBackend
from beam_spark_runner.state.memory import PAGE_BYTES

GROUPING = ""
"""Takes the place of a transform id in the store; no step has this id."""
_NAME_BYTES = 8
_MANY = 64
_INLINE_BYTES = 192
"""With at most this size, a window is one record of the store, see ``state.store_cells``."""

_NOTHING = PaneState()


class StoredPane:
    """A pane that is too large for a list. Its bags must not be cleared before it is read.

    Attributes:
        coded: The encoded values. To be read once.
        decode: Decodes one value.
    """

    def __init__(self, coded: Iterator[bytes], decode: Callable[[bytes], Any]) -> None:
        self.coded = coded
        self.decode = decode


class StoredPaneValues:
    """The values of a window's next pane, in the store. See ``PaneValues``.

    Args:
        read: Returns all values: those in bags, those inline, and those added.
        proto: The stored state of the window.

    Attributes:
        inline: The values that are stored with the window, encoded.
        bags: The names of the bags with the other stored values.
        stored: The number of values inline and in bags.
        stored_bytes: Their encoded size.
        merged_bytes: The size of the merged accumulators among them.
        added: The values that are not in the store yet.
    """

    __slots__ = (
        "_read",
        "added_values",
        "bags",
        "inline",
        "merged_bytes",
        "stored_bytes",
        "stored_count",
    )

    def __init__(
        self,
        read: Callable[["StoredPaneValues"], "list[Any] | StoredPane"],
        proto: PaneState = _NOTHING,
    ) -> None:
        self._read = read
        self.inline = proto.inline
        self.bags = list(proto.bags)
        self.stored_count = proto.stored
        self.stored_bytes = proto.stored_bytes
        self.merged_bytes = proto.merged_bytes
        self.added_values: list[Any] = []

    @property
    def is_worth_merging(self) -> bool:
        """Whether accumulators are many, and twice as large as after the last merge."""
        return self.stored_count >= _MANY and self.stored_bytes >= 2 * self.merged_bytes

    def append(self, value: Any) -> None:
        """See ``PaneValues.append``."""
        self.added_values.append(value)

    def absorb(self, other: "StoredPaneValues") -> None:
        """See ``PaneValues.absorb``."""
        self.inline += other.inline
        self.bags += other.bags
        self.stored_count += other.stored_count
        self.stored_bytes += other.stored_bytes
        self.merged_bytes += other.merged_bytes
        self.added_values += other.added_values

    def pane(self, *, keeps: bool) -> list[Any] | StoredPane:
        """See ``PaneValues.pane``."""
        values = self._read(self)
        if not keeps:
            self.inline, self.bags, self.added_values = b"", [], []
            self.stored_count = self.stored_bytes = self.merged_bytes = 0
        return values


class PaneBags:
    """The bags with the values of windows, of one key at a time.

    When a window is merged into another one, its bags become the other's unchanged. So the name of
    a bag is random and does not depend on the window.

    Args:
        store: The stage's records in the shard.
        coder: The coder of the values.

    Attributes:
        key: The current key; encoded, nested.
    """

    key = b""

    def __init__(self, store: StateBackend, coder: Coder) -> None:
        self._store = store
        self._decode = coder.get_impl().decode
        self._encode = coder.get_impl().encode
        # A value's encoding may be empty.
        self._framed = LengthPrefixCoder(coder).get_impl()
        self._frames = LengthPrefixCoder(BytesCoder()).get_impl()

    def new_values(self, proto: PaneState = _NOTHING) -> StoredPaneValues:
        """Return the values of a window of the key.

        Args:
            proto: The stored state of the window.
        """
        return StoredPaneValues(self._read, proto)

    def save(self, values: StoredPaneValues) -> None:
        """Move the added values to a bag or, if they are few and small, to ``inline``."""
        coded = map(self._framed.encode, values.added_values)
        values.stored_count += len(values.added_values)
        values.added_values = []
        small, size = [values.inline], len(values.inline)
        values.stored_bytes -= size
        for value in coded:
            small.append(value)
            size += len(value)
            if size > _INLINE_BYTES:
                break
        if size <= _INLINE_BYTES:
            values.inline = b"".join(small)
            values.stored_bytes += size
            return
        values.inline = b""
        if not values.bags:
            values.bags.append(os.urandom(_NAME_BYTES))
        bag = self._bag(values.bags[-1])
        for page in _joined_pages(itertools.chain(small, coded)):
            self._store.append(bag, page)
            values.stored_bytes += len(page)

    def replace(self, values: StoredPaneValues, accumulator: Any) -> None:
        """Replace all values of a window by one accumulator."""
        for bag in values.bags:
            self.clear(bag)
        values.inline, values.bags = b"", []
        values.stored_count = values.stored_bytes = 0
        values.added_values = [accumulator]
        self.save(values)
        values.merged_bytes = values.stored_bytes

    def clear(self, bag: bytes) -> None:
        """Remove a bag of the key."""
        self._store.clear(self._bag(bag))

    def _read(self, values: StoredPaneValues) -> list[Any] | StoredPane:
        pages = itertools.chain(self._pages(values.bags), (values.inline,))
        first = next(pages)
        second = next(pages, b"")
        third = next(pages, None)
        if third is None:
            return [*self._framed.decode_all(first + second), *values.added_values]
        every = itertools.chain((first, second, third), pages)
        stored_values = itertools.chain.from_iterable(map(self._frames.decode_all, every))
        return StoredPane(
            itertools.chain(stored_values, map(self._encode, [*values.added_values])), self._decode
        )

    def _pages(self, bags: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the contents of bags, small bags joined into one page."""
        small: list[bytes] = []
        for name in bags:
            page = self._store.get(self._bag(name))
            small.append(page.data)
            while page.token:
                yield b"".join(small)
                page = self._store.get(self._bag(name), page.token)
                small = [page.data]
        if small:
            yield b"".join(small)

    def _bag(self, name: bytes) -> Bag:
        return Bag(Cell(GROUPING, "values", name, self.key))


def _joined_pages(several: Iterable[bytes]) -> Iterator[bytes]:
    """Join values into pages of at least PAGE_BYTES; the last one may be smaller."""
    page: list[bytes] = []
    room = PAGE_BYTES
    for value in several:
        page.append(value)
        room -= len(value)
        if room <= 0:
            yield b"".join(page)
            page, room = [], PAGE_BYTES
    if page:
        yield b"".join(page)
