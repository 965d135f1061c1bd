"""User state and timers of a stage among the sorted records of a shard."""

import struct
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeVar

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.core.errors import FnApiProtocolError, InvariantError
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
    StoredTimer,
)
from beam_spark_runner.state.memory import PAGE_BYTES, CountValues, list_entries
from beam_spark_runner.state.store_keys import StoreKeys, ordered, part

_T = TypeVar("_T")

_BAG, _LIST, _MAP = b"b", b"l", b"m"
_FIRST, _MORE = b"\0", b"\1"  # of a bag: the first piece, with the number of pieces; the others
_MAP_KEY, _MAP_VALUE = b"\0", b"\1"
_COUNT = struct.Struct(">i")
_SEQUENCE = struct.Struct(">Q")
_COUNTS = struct.Struct(">iQ")  # of a map key: values, and pieces that hold them
_TOKEN = struct.Struct(">qqq")  # of a page: changes of the cell, the next piece, the end
_EVENT, _CLOCK = b"e", b"p"
_DUE_DOMAINS = {
    Domain.EVENT_TIME: _EVENT,
    Domain.WINDOW_EXPIRATION: _EVENT,
    Domain.PROCESSING_TIME: _CLOCK,
}


class Records(Protocol):
    """Sorted records, in one transaction. ``shards.Shard`` is one."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None: it has none."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Give a key a value, in place of any that it has."""
        ...

    def delete(self, key: bytes) -> bool:
        """Remove a key; return whether it was there."""
        ...

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield keys that begin with a prefix, in order, whatever is changed meanwhile."""
        ...

    def delete_prefix(self, prefix: bytes) -> None:
        """Remove all keys that begin with a prefix."""
        ...


class StoredState:
    """See ``StateBackend``. All of it is in the records: another one on the same goes on.

    Args:
        records: of the shard.
        stage: number of the stage in the plan.
        count_values: see ``MemoryState``.
        page_bytes: a page ends with the piece that reaches it.
    """

    def __init__(
        self,
        records: Records,
        stage: int,
        count_values: CountValues,
        *,
        page_bytes: int = PAGE_BYTES,
    ) -> None:
        self._records = records
        self._keys = StoreKeys(stage)
        self._count_values = count_values
        self._page_bytes = page_bytes
        self._changes: dict[Cell, int] = {}  # that make the tokens of pages void
        self.version = 0

    def get(self, address: Address, token: bytes = b"") -> Page:
        """See ``StateBackend.get``."""
        cell = address.cell
        position, end = 0, -1
        if token:
            if len(token) != _TOKEN.size:
                raise FnApiProtocolError("the SDK asked for a page by a token that is none")
            changes, position, end = _TOKEN.unpack(token)
            if changes != self._changes.get(cell, 0):
                raise FnApiProtocolError("state was cleared while it was read page by page")
        data: list[bytes] = []
        room = self._page_bytes
        pieces = islice(self._pieces(address), position, None if end < 0 else end)
        for piece in pieces:
            data.append(piece)
            room -= len(piece)
            position += 1
            if room <= 0:
                break
        if room > 0:
            return Page(b"".join(data), b"")
        if end < 0:
            end = position + sum(1 for _ in pieces)
        more = _TOKEN.pack(self._changes.get(cell, 0), position, end) if position < end else b""
        return Page(b"".join(data), more)

    def append(self, address: Address, data: bytes) -> None:
        """See ``StateBackend.append``."""
        if not data:
            return
        match address:
            case Bag(cell):
                self._append_to_bag(self._cell(cell, _BAG), data)
            case MapValues(cell, map_key):
                self._append_to_map(self._cell(cell, _MAP), cell, map_key, data)
            case ListRange(cell):
                prefix = self._cell(cell, _LIST)
                for sort_key, entry in list_entries(data):
                    self._append_to_bag(prefix + ordered(sort_key), entry)
                self._note_change(cell)
            case MapKeys() | MapEntries():
                raise FnApiProtocolError(
                    f"nothing can be added to the {type(address).__name__} of a state"
                )

    def clear(self, address: Address) -> None:
        """See ``StateBackend.clear``."""
        cell = address.cell
        match address:
            case Bag():
                self._records.delete_prefix(self._cell(cell, _BAG))
            case MapKeys():
                self._records.delete_prefix(self._cell(cell, _MAP))
            case MapValues(_, map_key):
                prefix = self._cell(cell, _MAP)
                self._records.delete(prefix + _MAP_KEY + part(map_key))
                self._records.delete_prefix(prefix + _MAP_VALUE + part(map_key))
            case ListRange(_, start, end):
                prefix = self._cell(cell, _LIST)
                for record, _ in self._in_range(prefix, start, end):
                    self._records.delete(record)
            case MapEntries():
                raise FnApiProtocolError("the entries of a multimap are cleared by its keys")
        self._note_change(cell)

    def timers(self, transform: str, key: bytes) -> Sequence[StoredTimer]:
        """See ``StateBackend.timers``."""
        coded = self._records.get(self._keys.timers(transform, key))
        return _timers_of(coded) if coded is not None else ()

    def set_timers(self, transform: str, key: bytes, timers: Sequence[StoredTimer]) -> None:
        """See ``StateBackend.set_timers``."""
        record = self._keys.timers(transform, key)
        coded_before = self._records.get(record)
        coded = _coded(transform, key, timers) if timers else None
        if coded == coded_before:
            return
        before = _timers_of(coded_before) if coded_before is not None else ()
        if coded is None:
            self._records.delete(record)
        else:
            self._records.put(record, coded)
        self._index(transform, key, before, timers)

    def due(self, watermark_us: int, clock_us: int) -> Iterator[tuple[str, bytes]]:
        """Yield the transform and the key of timers that are due, those of event time first.

        Whoever asks lets all timers of the key fire that are due, and sets those that remain.

        Args:
            watermark_us: event time; timers that are due at it are.
            clock_us: the same for processing time.
        """
        for domain, until_us in ((_EVENT, watermark_us), (_CLOCK, clock_us)):
            for record, coded in self._records.scan(self._keys.due_in(domain)):
                if self._keys.due_time(record) > until_us:
                    break
                found = store_pb2.StoredTimers.FromString(coded)
                yield found.transform, found.key

    def next_due(self) -> tuple[int | None, int | None]:
        """Return when the next timer is due: event time, and processing time."""
        found = [
            next(map(self._keys.due_time, (r for r, _ in self._records.scan(prefix))), None)
            for prefix in map(self._keys.due_in, (_EVENT, _CLOCK))
        ]
        return found[0], found[1]

    def least_hold(self) -> int | None:
        """Return the event time that the output's watermark must not pass; None: none holds it."""
        for record, _ in self._records.scan(self._keys.holds()):
            return self._keys.hold_time(record)
        return None

    def drop(self, key: bytes) -> None:
        """See ``StateBackend.drop``."""
        self._records.delete_prefix(self._keys.of_key(key))
        for _, coded in list(self._records.scan(self._keys.timers_of_key(key))):
            self.set_timers(store_pb2.StoredTimers.FromString(coded).transform, key, ())
        self._changes = {
            cell: changes + (cell.key == key) for cell, changes in self._changes.items()
        }

    def drop_window(self, transform: str, window: bytes, key: bytes) -> None:
        """See ``StateBackend.drop_window``."""
        self._records.delete_prefix(self._keys.of_window(transform, window, key))

    def seal(self, version: int) -> None:
        """See ``StateBackend.seal``. The records are sealed by their owner."""
        if version <= self.version:
            raise InvariantError(f"version {version} was sealed after {self.version}")
        self.version = version

    def _note_change(self, cell: Cell) -> None:
        self._changes[cell] = self._changes.get(cell, 0) + 1

    def _cell(self, cell: Cell, kind: bytes) -> bytes:
        """Return what the records of a cell begin with.

        Raises:
            FnApiProtocolError: the cell has been used as one of another kind.
        """
        prefix = self._keys.of_cell(cell)
        for record, _ in self._records.scan(prefix):
            if not record.startswith(prefix + kind):
                raise FnApiProtocolError(
                    f"the state {cell.state} is used as if it were of another kind"
                )
            break
        return prefix + kind

    def _pieces(self, address: Address) -> Iterator[bytes]:
        cell = address.cell
        match address:
            case Bag():
                yield from self._pieces_of_bag(self._cell(cell, _BAG))
            case MapKeys():
                for _, _, map_key in self._map_keys(cell):
                    yield map_key
            case MapValues(_, map_key):
                yield from self._values(self._cell(cell, _MAP), map_key)
            case MapEntries():
                # KV(key, iterable of its values): the iterable says first how many they are.
                prefix = self._cell(cell, _MAP)
                for count, _, map_key in self._map_keys(cell):
                    values = self._values(prefix, map_key)
                    yield b"".join([map_key, _COUNT.pack(count), *values])
            case ListRange(_, start, end):
                prefix = self._cell(cell, _LIST)
                for record, value in self._in_range(prefix, start, end):
                    is_first = len(record) == len(prefix) + _SEQUENCE.size + len(_FIRST)
                    yield value[_SEQUENCE.size :] if is_first else value

    def _append_to_bag(self, prefix: bytes, data: bytes) -> None:
        first = self._records.get(prefix + _FIRST)
        if first is None:  # most bags have one value
            self._records.put(prefix + _FIRST, _SEQUENCE.pack(1) + data)
            return
        (count,) = _SEQUENCE.unpack_from(first)
        self._records.put(prefix + _MORE + _SEQUENCE.pack(count), data)
        self._records.put(prefix + _FIRST, _SEQUENCE.pack(count + 1) + first[_SEQUENCE.size :])

    def _pieces_of_bag(self, prefix: bytes) -> Iterator[bytes]:
        first = self._records.get(prefix + _FIRST)
        if first is not None:
            yield first[_SEQUENCE.size :]
            for _, value in self._records.scan(prefix + _MORE):
                yield value

    def _append_to_map(self, prefix: bytes, cell: Cell, map_key: bytes, data: bytes) -> None:
        record = prefix + _MAP_KEY + part(map_key)
        found = self._records.get(record)
        count, pieces = _COUNTS.unpack_from(found) if found is not None else (0, 0)
        place = prefix + _MAP_VALUE + part(map_key) + _SEQUENCE.pack(pieces)
        self._records.put(place, data)
        count += self._count_values(cell, data)
        self._records.put(record, _COUNTS.pack(count, pieces + 1) + map_key)

    def _map_keys(self, cell: Cell) -> Iterator[tuple[int, int, bytes]]:
        for _, value in self._records.scan(self._cell(cell, _MAP) + _MAP_KEY):
            count, pieces = _COUNTS.unpack_from(value)
            yield count, pieces, value[_COUNTS.size :]

    def _values(self, prefix: bytes, map_key: bytes) -> Iterator[bytes]:
        for _, value in self._records.scan(prefix + _MAP_VALUE + part(map_key)):
            yield value

    def _in_range(self, prefix: bytes, start: int, end: int) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records of a list whose sort keys are in a range."""
        last = prefix + ordered(end) if end < 1 << 63 else None
        for record, value in self._records.scan(prefix, prefix + ordered(start)):
            if last is not None and record >= last:
                return
            yield record, value

    def _index(
        self,
        transform: str,
        key: bytes,
        before: Sequence[StoredTimer],
        after: Sequence[StoredTimer],
    ) -> None:
        """Have the first due time of each domain, and the least hold, be those of other timers."""
        owner = store_pb2.StoredTimers(key=key, transform=transform).SerializeToString()
        for domain in (_EVENT, _CLOCK):
            old_us, new_us = _first_due(before, domain), _first_due(after, domain)
            if old_us == new_us:
                continue
            if old_us is not None:
                self._records.delete(self._keys.due(domain, old_us, transform, key))
            if new_us is not None:
                self._records.put(self._keys.due(domain, new_us, transform, key), owner)
        old_us, new_us = _least_hold(before), _least_hold(after)
        if old_us != new_us:
            self._count_hold(old_us, -1)
            self._count_hold(new_us, 1)

    def _count_hold(self, time_us: int, change: int) -> None:
        if time_us == MAX_US:
            return
        record = self._keys.hold(time_us)
        found = self._records.get(record)
        count = change + (_SEQUENCE.unpack(found)[0] if found is not None else 0)
        if count:
            self._records.put(record, _SEQUENCE.pack(count))
        else:
            self._records.delete(record)


def _first_due(timers: Sequence[StoredTimer], domain: bytes) -> int | None:
    times = (timer.fires_us for timer in timers if _DUE_DOMAINS[timer.domain] == domain)
    return min(times, default=None)


def _least_hold(timers: Sequence[StoredTimer]) -> int:
    return min((timer.hold_us for timer in timers), default=MAX_US)


def _coded(transform: str, key: bytes, timers: Sequence[StoredTimer]) -> bytes:
    coded = [
        store_pb2.StoredTimer(**{**timer._asdict(), "domain": timer.domain.value})
        for timer in timers
    ]
    proto = store_pb2.StoredTimers(key=key, transform=transform, timers=coded)
    return bytes(proto.SerializeToString(deterministic=True))


def _timers_of(coded: bytes) -> tuple[StoredTimer, ...]:
    return tuple(
        StoredTimer(
            each.family,
            each.tag,
            each.window,
            Domain(each.domain),
            each.fires_us,
            each.hold_us,
            each.pane,
        )
        for each in store_pb2.StoredTimers.FromString(coded).timers
    )
