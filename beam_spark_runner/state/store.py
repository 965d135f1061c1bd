"""User state and timers of a stage, stored as sorted records of a shard."""

import itertools
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import Domain
from beam_spark_runner.state.backend import Address, Bag, Batches, MapValues, Page, StoredTimer
from beam_spark_runner.state.coded_timers import coded_place, coded_timer, timer_of
from beam_spark_runner.state.first_times import FirstTimes, first_times
from beam_spark_runner.state.locked_records import SortedRecords
from beam_spark_runner.state.memory import PAGE_BYTES, CountValues
from beam_spark_runner.state.store_cells import StoredCells
from beam_spark_runner.state.store_keys import StoreKeys, number_of, numbered

_HOLDERS = struct.Struct(">Q")
_EVENT, _CLOCK = b"e", b"p"
_ASKED = 1_000  # keys with due timers that are loaded together
_DUE_DOMAINS = {
    Domain.EVENT_TIME: _EVENT,
    Domain.WINDOW_EXPIRATION: _EVENT,
    Domain.PROCESSING_TIME: _CLOCK,
}


class StoredState:
    """See ``StateBackend``. Everything is in the records: a new instance on them continues.

    Of several instances on the same records, only one may set the timers of an owner.

    Each timer has a record, numbered in the order in which the timers of a key were set. One
    index has the first due time of each key and domain, another one the least hold of each key.

    Args:
        records: The records of the shard.
        stage: The number of the stage in the plan.
        count_values: See ``MemoryState``.
        page_bytes: The size at which a page ends, after the piece that reaches it.
        lists_holds: Whether each holder is a record, so that setting a hold reads nothing; else a
            record counts those of one time. See ``FirstTimes.listed_hold_us``.
        own_transform: See ``StoreKeys``.
        ask: Loads what user keys have, which ``store_keys`` has encoded, in one round trip. None:
            the records are on this host.
        ask_due: Likewise, for keys that are due. None: as ``ask`` does.
        ask_records: See ``StoredCells``.
        batches: Executes requests of many keys together; also an attribute. None: nothing does.
    """

    def __init__(
        self,
        records: SortedRecords,
        stage: int,
        count_values: CountValues,
        *,
        page_bytes: int = PAGE_BYTES,
        lists_holds: bool = False,
        own_transform: str = "",
        ask: Callable[[Iterable[bytes]], None] | None = None,
        ask_due: Callable[[Iterable[bytes]], None] | None = None,
        ask_records: Callable[[Sequence[bytes]], None] | None = None,
        batches: Batches | None = None,
    ) -> None:
        self._records = records
        self._lists_holds, self._ask, self.batches = lists_holds, ask, batches
        self._ask_due = ask_due or ask
        self._keys = StoreKeys(stage, own_transform)
        self._cells = StoredCells(records, self._keys, count_values, page_bytes, ask_records)
        self._read_last: _OwnedTimers | None = None  # None: they have changed
        self.version = 0

    @property
    def is_remote(self) -> bool:
        """Whether reading a key takes a round trip, unless it was asked for."""
        return self._ask is not None

    def ask(self, keys: Iterable[bytes]) -> None:
        """Load what keys have, in one round trip, before it is read.

        Args:
            keys: The keys, encoded and nested.
        """
        if self._ask is not None:
            self._ask(map(self._keys.user_key, keys))

    def get(self, address: Address, token: bytes = b"") -> Page:
        """See ``StateBackend.get``."""
        return self._cells.get(address, token)

    def append(self, address: Address, data: bytes) -> None:
        """See ``StateBackend.append``."""
        self._cells.append(address, data)

    def clear(self, address: Address) -> None:
        """See ``StateBackend.clear``."""
        self._cells.clear(address)

    def replace_values(self, address: MapValues, data: bytes) -> None:
        """See ``StateBackend.replace_values``."""
        self._cells.replace_values(address, data)

    def whole(self, bag: Bag) -> bytes:
        """Return the whole content of a bag."""
        return self._cells.whole(bag)

    def replace(self, bag: Bag, data: bytes, *, is_new: bool = False) -> None:
        """Replace the content of a bag by encoded elements, at least one.

        Args:
            bag: The bag.
            data: Its new content.
            is_new: Whether the bag is known to be empty, so that it need not be read.
        """
        self._cells.replace(bag, data, is_new=is_new)

    def timers(self, transform: str, key: bytes) -> Sequence[StoredTimer]:
        """See ``StateBackend.timers``."""
        return self._read(self._keys.owner(transform, key)).timers

    def _read(self, owner: bytes) -> "_OwnedTimers":
        """Return the timers of an owner; a second call in a row needs no scan."""
        read = self._read_last
        if read is None or read.owner != owner:
            records = list(self._records.scan(self._keys.timers(owner)))
            timers = tuple(timer_of(coded) for _, coded in records)
            read = self._read_last = _OwnedTimers(owner, records, timers)
        return read

    def timers_of_key(self, family: str, key: bytes) -> Sequence[StoredTimer]:
        """Return the timers of a family that a key has, in all transforms.

        Args:
            family: The timer family.
            key: The key, encoded and nested.
        """
        timers = (timer_of(coded) for _, coded in self._records.scan(self._keys.timers_of_key(key)))
        return tuple(timer for timer in timers if timer.family == family)

    def set_timers(self, transform: str, key: bytes, timers: Sequence[StoredTimer]) -> None:
        """See ``StateBackend.set_timers``. Only records that change are written."""
        owner = self._keys.owner(transform, key)
        _, records, previous_timers = self._read(owner)
        coded_timers = [coded_timer(timer) for timer in timers]
        if coded_timers == [coded for _, coded in records]:
            return
        self._read_last = None if coded_timers else _OwnedTimers(owner, [], ())
        if records:
            self._rewrite(self._keys.timers(owner), records, coded_timers)
        else:
            self._write(owner, coded_timers)
        self._index(owner, coded_place(self._keys.named(transform), key), previous_timers, timers)

    def add_timers(self, transform: str, key: bytes, timers: Sequence[StoredTimer]) -> None:
        """Set the timers of a transform and key that have none; cheaper than ``set_timers``."""
        owner = self._keys.owner(transform, key)
        self._read_last = None
        self._write(owner, [coded_timer(timer) for timer in timers])
        self._index(owner, coded_place(self._keys.named(transform), key), (), timers)

    def _write(self, owner: bytes, coded_timers: Sequence[bytes]) -> None:
        prefix = self._keys.timers(owner)
        for number, coded in enumerate(coded_timers):
            self._records.put(prefix + numbered(number), coded)

    def due(self, watermark_us: int, clock_us: int) -> Iterator[tuple[str, bytes]]:
        """Yield the transform and key of due timers, those of event time first.

        After each item, the caller fires timers of the key and stores those that remain. A key
        is yielded once, even if some of its due timers remain: they wait for the next call.

        Args:
            watermark_us: The event time until which timers are due, inclusive.
            clock_us: The processing time until which timers are due, inclusive.
        """
        until_us = {_EVENT: watermark_us, _CLOCK: clock_us}
        # Not all keys that were yielded: at the end of a window, any number of keys is due.
        remaining: set[tuple[str, bytes]] = set()
        for domain in (_EVENT, _CLOCK):
            for number, (record, coded) in enumerate(self._records.scan(self._keys.due_in(domain))):
                if self._keys.due_time(record) > until_us[domain]:
                    break
                if self._ask_due is not None and number % _ASKED == 0:
                    self._ask_for_due(self._ask_due, domain, record, until_us[domain])
                owner = store_pb2.TimerOwner.FromString(coded)
                place = self._keys.transform_of(owner.transform), owner.key
                if place in remaining:
                    continue
                yield place
                timers = self._timers_if_loaded(*place)
                if timers is None or any(
                    timer.fires_us <= until_us[_DUE_DOMAINS[timer.domain]] for timer in timers
                ):
                    remaining.add(place)

    def _timers_if_loaded(self, transform: str, key: bytes) -> Sequence[StoredTimer] | None:
        """Return the timers of a key; None: it may be in flight, and they are not loaded yet."""
        if self.batches is None:
            return self.timers(transform, key)
        return self.batches.attempt(lambda: self.timers(transform, key)).result

    def _ask_for_due(
        self, ask: Callable[[Iterable[bytes]], None], domain: bytes, first: bytes, until_us: int
    ) -> None:
        """Load the keys of the next due timers.

        Args:
            ask: Loads them.
            domain: The domain of the timers.
            first: The record of the first one, in the index.
            until_us: The time until which timers are due.
        """
        due = itertools.takewhile(
            lambda each: self._keys.due_time(each[0]) <= until_us,
            self._records.scan(self._keys.due_in(domain), first),
        )
        coded = itertools.islice((coded for _, coded in due), _ASKED)
        keys = (store_pb2.TimerOwner.FromString(each).key for each in coded)
        ask(map(self._keys.user_key, keys))

    def all_timers(self) -> Iterator[tuple[str, bytes, Sequence[StoredTimer]]]:
        """Yield each transform and key that have timers, with these timers."""
        for domain in (_EVENT, _CLOCK):
            for _, coded in self._records.scan(self._keys.due_in(domain)):
                owner = store_pb2.TimerOwner.FromString(coded)
                transform = self._keys.transform_of(owner.transform)
                timers = self.timers(transform, owner.key)
                if domain == _EVENT or first_times(timers).event_us is None:
                    yield transform, owner.key, timers

    def next_due(self) -> tuple[int | None, int | None]:
        """Return the first due times in event time and in processing time; None: no timer."""
        event_us, clock_us = (
            next((self._keys.due_time(record) for record, _ in self._records.scan(prefix)), None)
            for prefix in map(self._keys.due_in, (_EVENT, _CLOCK))
        )
        return event_us, clock_us

    def is_empty(self) -> bool:
        """Whether the shard has no records of the stage."""
        return next(iter(self._records.scan(self._keys.stage)), None) is None

    def least_hold(self) -> int | None:
        """Return the least hold of the output watermark, event time; None: there is no hold.

        Where holders are listed, the first due time in event time counts as a hold.
        """
        holds = (self._keys.hold_time(key) for key, _ in self._records.scan(self._keys.holds()))
        hold_us = next(holds, MAX_US)
        if self._lists_holds:
            due = (
                self._keys.due_time(key) for key, _ in self._records.scan(self._keys.due_in(_EVENT))
            )
            hold_us = min(hold_us, next(due, MAX_US))
        return None if hold_us == MAX_US else hold_us

    def count_holders(self) -> int:
        """Count the keys that hold the output watermark; a key counts once per transform."""
        counts = (_HOLDERS.unpack(count)[0] for _, count in self._records.scan(self._keys.holds()))
        return sum(counts)

    def drop(self, key: bytes) -> None:
        """See ``StateBackend.drop``."""
        self._cells.drop(key)
        self._read_last = None
        timers_by_owner: dict[bytes, list[StoredTimer]] = {}
        for record, coded in self._records.scan(self._keys.timers_of_key(key)):
            timers_by_owner.setdefault(self._keys.owner_of_timer(record), []).append(
                timer_of(coded)
            )
            self._records.delete(record)
        for owner, timers in timers_by_owner.items():
            self._index(owner, b"", timers, ())

    def drop_window(self, transform: str, window: bytes, key: bytes) -> None:
        """See ``StateBackend.drop_window``."""
        self._cells.drop_window(transform, window, key)

    def seal(self, version: int) -> None:
        """See ``StateBackend.seal``. The records are sealed by their owner."""
        if version <= self.version:
            raise InvariantError(f"version {version} was sealed after {self.version}")
        self.version = version

    def _rewrite(
        self, prefix: bytes, records: Sequence[tuple[bytes, bytes]], coded_timers: Sequence[bytes]
    ) -> None:
        """Replace the records of timers by those of other timers, in their order.

        Most timers stay, or have fired; a timer that is set again moves to the end, or keeps its
        place if only its hold or pane differs. In these cases, only changed timers are written.
        """
        if not coded_timers:
            for record, _ in records:
                self._records.delete(record)
            return
        old = Counter(coded for _, coded in records)  # old timers that the loop has not reached
        position = 0
        for record, coded in records:
            old[coded] -= 1
            following = coded_timers[position] if position < len(coded_timers) else None
            if following == coded:
                position += 1
            elif following is not None and not old[following]:
                self._records.put(record, following)
                position += 1
            else:
                self._records.delete(record)
        following_number = number_of(records[-1][0]) + 1
        for number, coded in enumerate(coded_timers[position:], following_number):
            self._records.put(prefix + numbered(number), coded)

    def _index(
        self,
        owner: bytes,
        place: bytes,
        old_timers: Sequence[StoredTimer],
        new_timers: Sequence[StoredTimer],
    ) -> None:
        """Update the first due time of each domain, and the least hold, in the indexes.

        Args:
            owner: The owner of the timers, see ``StoreKeys.owner``.
            place: The transform and key that ``due`` yields, encoded as a ``TimerOwner``.
            old_timers: The timers that are indexed now.
            new_timers: The timers that replace them.
        """
        old, new = first_times(old_timers), first_times(new_timers)
        for domain, old_us, new_us in (
            (_EVENT, old.event_us, new.event_us),
            (_CLOCK, old.clock_us, new.clock_us),
        ):
            if old_us == new_us:
                continue
            if old_us is not None:
                self._records.delete(self._keys.due(domain, old_us, owner))
            if new_us is not None:
                self._records.put(self._keys.due(domain, new_us, owner), place)
        if self._lists_holds:
            self._list_hold(owner, old, new)
        elif old.hold_us != new.hold_us:
            self._change_holders(old.hold_us, -1)
            self._change_holders(new.hold_us, 1)

    def _list_hold(self, owner: bytes, old: FirstTimes, new: FirstTimes) -> None:
        """List an owner's hold, if it holds the watermark more than its first due time does.

        The watermark does not pass an event time that is due before the timer has fired. Earlier
        versions have listed all holds, so that there may be a record of the old one in any case.
        """
        if old == new:
            return
        listed_us = new.listed_hold_us
        if old.hold_us not in (listed_us, MAX_US):
            self._records.delete(self._keys.hold(old.hold_us) + owner)
        if listed_us not in (old.listed_hold_us, MAX_US):
            self._records.put(self._keys.hold(listed_us) + owner, _HOLDERS.pack(1))

    def _change_holders(self, time_us: int, change: int) -> None:
        if time_us == MAX_US:
            return
        record = self._keys.hold(time_us)
        coded = self._records.get(record)
        count = change + (_HOLDERS.unpack(coded)[0] if coded is not None else 0)
        if count < 0:
            raise InvariantError(f"nothing holds {time_us} us")
        if count:
            self._records.put(record, _HOLDERS.pack(count))
        else:
            self._records.delete(record)


class _OwnedTimers(NamedTuple):
    """The timers of an owner, with the records that have them."""

    owner: bytes
    records: list[tuple[bytes, bytes]]
    timers: tuple[StoredTimer, ...]
