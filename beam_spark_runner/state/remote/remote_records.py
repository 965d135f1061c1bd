"""The keyed records of a stage: those of a state store, under the changes of one attempt."""

import heapq
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from beam_spark_runner.state.backend import Answer
from beam_spark_runner.state.remote import packs
from beam_spark_runner.state.remote.key_store import INDEXES, Change, Read, Structure
from beam_spark_runner.state.remote.keyed_keys import (
    STAGE_BYTES,
    TIMERS,
    RecordOfKey,
    index_of,
    is_of_key,
    prefix_of,
    record_of_key,
    split_member,
    split_user_key,
    user_key_in,
)
from beam_spark_runner.state.remote.loaded_reads import MissedReadsError
from beam_spark_runner.state.remote.overlay import Overlay
from beam_spark_runner.state.remote.stored_groups import StoredGroups

T = TypeVar("T")
_ChangesOfKey: TypeAlias = tuple[bytes, Mapping[bytes, bytes | None]]
_OF_KEYS = b"k"  # in the overlay; the user key and the name of the record follow
_FEW_CHANGES = 8
_SEALED = 1_000  # user keys whose packs are loaded together when the attempt ends
_SEALED_BYTES = 8 << 20  # about the most bytes of their changes


class RemoteRecords:
    """See ``SortedRecords``: the records of one stage, in the groups of one partition.

    Nothing in the store is changed. All methods may raise ``StateStoreError`` if the store does not
    work, and ``ShardStorageError`` if the local disk does not.

    Args:
        groups: The groups at the head.
        overlay: Takes the changes.
    """

    def __init__(self, groups: StoredGroups, overlay: Overlay) -> None:
        self._groups, self._overlay = groups, overlay
        # What the changes of an attempt have replaced. None: there is none.
        self._replaced: list[tuple[bytes, bool, bytes | None]] | None = None

    @property
    def has_changed(self) -> bool:
        """Whether anything was put or deleted."""
        return self._overlay.changes > 0

    def ask(self, user_keys: Iterable[bytes]) -> None:
        """Load the packs of user keys, as ``store_keys`` encodes them, in one round trip."""
        self._groups.ask(user_keys)

    def ask_values(self, user_keys: Iterable[bytes]) -> None:
        """Load all that user keys have, in a few round trips; of long values, some MB."""
        self._groups.ask_values([*dict.fromkeys(user_keys)])

    def ask_records(self, keys: Sequence[bytes]) -> None:
        """Load the values of records of one user key, of long ones some MB."""
        if not keys:
            return
        records = [record_of_key(key[STAGE_BYTES:]) for key in keys]
        user_key = records[0].user_key
        pack = self._groups.pack(user_key)
        if pack.outlying:
            self._groups.ask_outlying(
                user_key + name
                for _, name in records
                if name not in pack.records and not self._overlay.get(_OF_KEYS + user_key + name)[0]
            )

    def attempt(self, request: Callable[[], T]) -> Answer[T, Read]:
        """Execute a request on what is loaded. Its changes count only if that is enough.

        Args:
            request: Uses these records. It is called again with what was missing.
        """
        self._replaced = []
        try:
            self._groups.must_be_loaded = True
            return Answer(request())
        except MissedReadsError as error:
            for place, was_changed, value in reversed(self._replaced):
                if was_changed:
                    self._overlay.put(place, value)
                else:
                    self._overlay.forget(place)
            return Answer(None, error.reads)
        finally:
            self._groups.must_be_loaded, self._replaced = False, None

    def load(self, missed: Sequence[Read]) -> None:
        """Load what requests have missed, in one round trip."""
        self._groups.load(missed)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a record; None: there is none."""
        record = key[STAGE_BYTES:]
        if not is_of_key(record):
            return next((value for found, value in self.scan(key) if found == key), None)
        user_key, name = record_of_key(record)
        was_changed, value = self._overlay.get(_OF_KEYS + user_key + name)
        if was_changed:
            return value
        pack = self._groups.pack(user_key)
        value = pack.records.get(name)
        if value is None and pack.outlying:
            (value,) = self._groups.outlying(user_key, [name])
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a record."""
        self._change(_place_of(key), value)

    def delete(self, key: bytes) -> None:
        """Remove a record, if it exists."""
        self._change(_place_of(key), None)

    def _change(self, place: bytes, value: bytes | None) -> None:
        if self._replaced is not None:
            self._replaced.append((place, *self._overlay.get(place)))
        self._overlay.put(place, value)

    def delete_prefix(self, prefix: bytes) -> None:
        """Remove all records whose keys begin with a prefix. Outlying values are not read."""
        stage, record = prefix[:STAGE_BYTES], prefix[STAGE_BYTES:]
        if not (record and is_of_key(record)):
            for key, _ in self.scan(prefix):
                self.delete(key)
            return
        user_key, name = record_of_key(record)
        pack, changed = self._groups.pack(user_key), _OF_KEYS + user_key
        found = {each for each in pack.records if each.startswith(name)}
        if pack.outlying:
            outlying = self._groups.outlying_names(user_key + name, user_key + name)
            found.update(each[len(user_key) :] for each in outlying)
        of_change = (key[len(changed) :] for key, _ in self._overlay.items(changed + name))
        found.update(of_change)
        for each in found:
            self.delete(stage + RecordOfKey(user_key, each).key())

    def scan(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yield records whose keys begin with a prefix, in order; changes are seen."""
        stage, record = prefix[:STAGE_BYTES], prefix[STAGE_BYTES:]
        first = max(prefix, start)[STAGE_BYTES:]
        if not record:
            if not self._is_empty():
                yield prefix, b""
        elif is_of_key(record):
            user_key, name = record_of_key(record)
            start_name = record_of_key(first).name
            stored = self._stored_of_key(user_key, name, start_name)
            for each, value in self._overlaid(_OF_KEYS + user_key, name, start_name, stored):
                yield stage + RecordOfKey(user_key, each).key(), value
        else:
            structure, name = index_of(record)
            start_name = first[len(record) - len(name) :]
            members = map(split_member, self._groups.members(structure, start_name))
            stored = itertools.takewhile(lambda member: member[0].startswith(name), members)
            place = prefix_of(structure)
            for each, value in self._overlaid(place, name, start_name, stored):
                yield stage + place + each, value

    def changes(self) -> Iterator[tuple[int, Change]]:
        """Yield all changed entries of groups, with the group of each; no entry comes twice.

        Packs in memory become those after the changes, so that the records are not used afterwards.
        """
        for structure in INDEXES:
            prefix = prefix_of(structure)
            for key, value in self._overlay.items(prefix):
                name = key[len(prefix) :]
                yield self._groups.group_of(user_key_in(name)), Change(structure, name, value)
        for user_key, changed in self._changed_packs():
            group, before = self._groups.group_of(user_key), self._groups.pack(user_key)
            for name, value in changed.outlying.items():
                yield group, Change(Structure.OUTLYING, user_key + name, value)
            if not (changed.pack.is_empty and before.is_empty):
                coded = None if changed.pack.is_empty else packs.encode(changed.pack)
                self._groups.keep(user_key, coded)
                yield group, Change(Structure.PACKS, user_key, coded)

    def has_change_of(self, structure: Structure, name: bytes) -> bool:
        """Whether a stored entry is one of ``changes``."""
        if structure in INDEXES:
            return self._overlay.get(prefix_of(structure) + name)[0]
        if structure is Structure.OUTLYING:
            return self._overlay.get(_OF_KEYS + name)[0]
        changed = self._overlay.next(_OF_KEYS + name)
        return changed is not None and changed[0].startswith(_OF_KEYS + name)

    def _changed_packs(self) -> Iterator[tuple[bytes, packs.ChangedPack]]:
        """Yield the changed packs, in the order of user keys."""
        records = (
            (*split_user_key(key[len(_OF_KEYS) :]), value)
            for key, value in self._overlay.items(_OF_KEYS)
        )
        by_key = (
            (user_key, {name: value for _, name, value in found})
            for user_key, found in itertools.groupby(records, key=lambda each: each[0])
        )
        for some in _parts(by_key):
            self._groups.ask(user_key for user_key, _ in some)
            existing = self._groups.existing(
                user_key + name
                for user_key, changes in some
                if (pack := self._groups.pack(user_key)).outlying
                for name in changes
                if name not in pack.records
            )
            for user_key, changes in some:
                outlying = {name for name in changes if user_key + name in existing}
                pack = self._groups.pack(user_key)
                yield user_key, packs.changed(pack, _most_read_first(changes), outlying)

    def _is_empty(self) -> bool:
        """Whether no user key has a record."""
        if any(value is not None for _, value in self._overlay.items(_OF_KEYS)):
            return False
        left = self._groups.count(Structure.PACKS)
        if not left:
            return True
        changed_keys = (
            split_user_key(key[len(_OF_KEYS) :])[0] for key, _ in self._overlay.items(_OF_KEYS)
        )
        if sum(1 for _ in itertools.groupby(changed_keys)) < left:
            return False  # some have not changed
        for user_key, changed in self._changed_packs():
            if not changed.pack.is_empty:
                return False
            left -= not self._groups.pack(user_key).is_empty
        return not left

    def _stored_of_key(
        self, user_key: bytes, prefix: bytes, start: bytes
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the stored records of a user key, in the order of their names."""
        pack = self._groups.pack(user_key)
        names = sorted(name for name in pack.records if name.startswith(prefix))
        inside = ((name, pack.records[name]) for name in names[bisect_left(names, start) :])
        if not pack.outlying:
            return inside
        found = self._groups.outlying_from(user_key + start, user_key + prefix)
        outside = ((name[len(user_key) :], value) for name, value in found)
        return heapq.merge(inside, outside)

    def _overlaid(
        self, place: bytes, prefix: bytes, start: bytes, stored: Iterator[tuple[bytes, bytes]]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield stored records and changed ones, in the order of their names.

        Args:
            place: Where the changed ones are in the overlay: what precedes their names.
            prefix: The beginning of all names.
            start: The least name.
            stored: The stored ones, in the order of their names, from ``start`` on.
        """
        position, is_passed = place + max(prefix, start), False
        coming: tuple[bytes, bytes] | None = None
        changes, changed, is_taken = -1, None, True
        while True:
            if is_taken:  # only now: the first one of an index needs no read, the next one does
                coming, is_taken = next(stored, None), False
            if changes != self._overlay.changes:
                changed = self._overlay.next(position, is_passed=is_passed)
                if changed is not None and not changed[0].startswith(place + prefix):
                    changed = None
                changes = self._overlay.changes
            name = None if changed is None else changed[0][len(place) :]
            value: bytes | None
            if coming is not None and (name is None or coming[0] <= name):
                found, value = coming
                is_taken = True
                if found == name:
                    assert changed is not None
                    value, changes = changed[1], -1
            elif name is not None:
                assert changed is not None
                found, value, changes = name, changed[1], -1
            else:
                return
            position, is_passed = place + found, True
            if value is not None:
                yield found, value


def _parts(by_key: Iterator[_ChangesOfKey]) -> Iterator[list[_ChangesOfKey]]:
    """Divide the changes of user keys into parts that fit into memory."""
    some: list[_ChangesOfKey] = []
    size = 0
    for user_key, changes in by_key:
        some.append((user_key, changes))
        size += sum(len(value or b"") for value in changes.values())
        if len(some) == _SEALED or size >= _SEALED_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _most_read_first(changes: Mapping[bytes, bytes | None]) -> Mapping[bytes, bytes | None]:
    """Order changes by how often their records are read, since a pack may not have room for all.

    Those are timers, which each task reads, and then heads of cells, whose names are shorter than
    those of their other records.
    """
    if len(changes) <= _FEW_CHANGES:
        return changes
    order = sorted(changes, key=lambda name: (name[:1] != TIMERS, len(name), name))
    return {name: changes[name] for name in order}


def _place_of(key: bytes) -> bytes:
    """Return where a record is in the overlay."""
    record = key[STAGE_BYTES:]
    if not is_of_key(record):
        return record
    user_key, name = record_of_key(record)
    return _OF_KEYS + user_key + name
