"""Reads the groups of one stage and partition in a state store, at the head of the checkpoint."""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from beam_spark_runner.core.key_groups import group_of
from beam_spark_runner.recovery.copies import GroupTag
from beam_spark_runner.state.remote.key_store import (
    SLICED,
    Change,
    KeyStore,
    Names,
    Opened,
    Packs,
    PacksFrom,
    Read,
    Reply,
    StateStoreError,
    Structure,
    Values,
)
from beam_spark_runner.state.remote.keyed_keys import (
    delta_key,
    split_member,
)
from beam_spark_runner.state.remote.loaded_packs import LoadedPacks
from beam_spark_runner.state.remote.loaded_reads import LoadedReads, MissedReadsError, merged
from beam_spark_runner.state.remote.packs import Pack
from beam_spark_runner.state.remote.pieces import first_piece, names_of_others
from beam_spark_runner.state.store_keys import hash_of_owner

LOADED_BYTES = 64 << 20
"""The most bytes of packs that a stage has in memory."""

_PAGE = 500  # names or members that are read together
_FIRST_VALUES = 16  # outlying values that are read together at first, whatever their sizes
_MAX_VALUES = 2_000  # of any keys that are read together
_VALUES_BYTES = 1 << 20  # about as many bytes of them are read together
_PIECES = 8  # pieces of a value that are read together
_AHEAD = 4_000  # entries that are read together for a slice
_TRIES = 5


class _Place(NamedTuple):
    """Where entries begin: in a structure of a group, at a name."""

    group: int
    structure: Structure
    start: bytes


class StoredGroups:
    """The content of groups. It does not change: an attempt's own changes are elsewhere.

    All methods raise ``StateStoreError`` if the store does not work.

    Args:
        store: The groups of the stage.
        opened: The groups of the partition, as they were opened at the head.
        key_groups: The number of all key groups.
        is_current: Whether a group's tag is that of its head.
        advance: Brings groups to the head again, after one was not.
        loaded: Some packs of the head.

    Attributes:
        loaded: The packs that are in memory.
        largest_group_bytes: Of all groups whose packs were read as a whole, the most bytes.
        must_be_loaded: Whether ``MissedReadsError`` is raised in place of reads.
    """

    def __init__(
        self,
        store: KeyStore,
        opened: Mapping[int, Opened],
        key_groups: int,
        is_current: Callable[[int, GroupTag], bool],
        advance: Callable[[Collection[int]], object],
        loaded: LoadedPacks,
    ) -> None:
        self._store, self._opened, self._key_groups = store, opened, key_groups
        self._is_current, self._advance = is_current, advance
        self.loaded = loaded
        self.largest_group_bytes = 0
        self._reads = LoadedReads(LOADED_BYTES)
        self.must_be_loaded = False

    def load(self, missed: Sequence[Read]) -> None:
        """Load what requests have missed, in one round trip."""
        reads = [*merged(missed)]
        for read, reply in zip(reads, self._replies(reads), strict=True):
            if isinstance(read, Packs):
                for name, value in zip(read.names, reply.values, strict=True):
                    self.keep(name, value)
            elif isinstance(read, Values | Names):
                self._reads.keep(read, reply.values)

    def load_values(self, names: Iterable[bytes]) -> None:
        """Load outlying records by user key and name; as many together as fit into memory."""
        names = iter(names)
        count = _FIRST_VALUES
        while some := list(itertools.islice(names, count)):
            missing = self._reads.find(Values(0, some))
            if isinstance(missing, Values):
                self.load([Values(self.group_of(name), [name]) for name in missing.names])
            found = self._reads.find(Values(0, some))
            size = sum(len(value or b"") for value in found) if isinstance(found, list) else 0
            count = max(1, min(_MAX_VALUES, _VALUES_BYTES * len(some) // (size + 1)))

    def count(self, structure: Structure) -> int:
        """Return the number of entries of all groups."""
        return sum(each.sizes[structure] for each in self._opened.values())

    def group_of(self, user_key: bytes) -> int:
        """Return the group of a user key, or of what begins with it."""
        return group_of(hash_of_owner(user_key), self._key_groups)

    def ask(self, user_keys: Iterable[bytes]) -> None:
        """Load the packs of user keys that are not loaded, in one round trip."""
        by_group: dict[int, list[bytes]] = {}
        for each in dict.fromkeys(user_keys):
            if each in self.loaded:
                continue
            group = self.group_of(each)
            if self._opened[group].sizes[Structure.PACKS]:
                by_group.setdefault(group, []).append(each)
            else:
                self.keep(each, None)
        if not by_group:
            return
        reads: list[Read] = [Packs(group, names) for group, names in by_group.items()]
        if self.must_be_loaded:
            raise MissedReadsError(reads)
        self.load(reads)

    def pack(self, user_key: bytes) -> Pack:
        """Return the pack of a user key; an empty one if there is none."""
        found = self.loaded.get(user_key)
        if found is None:
            self.ask([user_key])
            found = self.loaded.get(user_key)
            assert found is not None
        return found

    def keep(self, user_key: bytes, coded: bytes | None) -> None:
        """Keep the pack of a user key in memory; None: it has none."""
        self.loaded.put(user_key, coded)
        self.loaded.shrink(LOADED_BYTES, _PAGE)

    def outlying(self, user_key: bytes, names: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of records of a user key that are outlying; None: one is not."""
        full = (user_key + name for name in names)
        return [value for _, value in self._values(self.group_of(user_key), full)]

    def outlying_from(self, start: bytes, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield outlying records in the order of their names, with their values.

        Args:
            start: The user key and the least name.
            prefix: What all of them begin with: the user key, and the beginning of the name.
        """
        group = self.group_of(prefix)
        names = self._names(group, Structure.OUTLYING, max(start, prefix), after(prefix))
        return self._with_values(group, names)

    def members(self, structure: Structure, start: bytes) -> Iterator[bytes]:
        """Yield the members of an index, of all groups, in their order.

        Args:
            structure: The index.
            start: The least member.
        """
        pages: dict[int, Sequence[bytes | None]] = {}

        def first_page(group: int) -> Sequence[bytes | None]:
            """Read the first members of all groups together, once those of one are needed."""
            if not pages:
                groups = [
                    number
                    for number, each in self._opened.items()
                    if each.sizes[structure] > 1 or each.firsts.get(structure, b"") < start
                ]
                reads = [Names(number, structure, start, b"", _PAGE) for number in groups]
                pages.update(zip(groups, self._read(reads), strict=True))
            return pages[group]

        return heapq.merge(
            *(self._members(group, structure, start, first_page) for group in self._opened)
        )

    def entries(self, start: bytes) -> Iterator[tuple[bytes, int, Change]]:
        """Yield all entries, in the order of their keys in deltas.

        Args:
            start: The least key.

        Yields:
            The key of an entry, its group, and the entry. The packs of some groups are in memory.
        """
        for some in self._read_together(self._places(start)):
            first_pages = self._replies([self._first_read(each) for each in some])
            for place, page in zip(some, first_pages, strict=True):
                prefix = delta_key(place.group, place.structure)
                for name, value in self._ordered(place, page):
                    yield prefix + name, place.group, Change(place.structure, name, value)

    def _places(self, start: bytes) -> Iterator["_Place"]:
        """Yield the structures that have entries, in the order of their keys in deltas."""
        for group in sorted(self._opened):
            for structure in SLICED:
                prefix = delta_key(group, structure)
                if start < after(prefix) and self._opened[group].sizes[structure]:
                    first = start[len(prefix) :] if start.startswith(prefix) else b""
                    yield _Place(group, structure, first)

    def _read_together(self, places: Iterator["_Place"]) -> Iterator[list["_Place"]]:
        """Group structures whose first pages are read together: more and more, until some MB."""
        limit = 1
        while some := list(itertools.islice(places, 1)):
            size = self._size(some[0])
            for place in itertools.islice(places, limit - 1):
                some.append(place)
                size += self._size(place)
                if size >= _AHEAD:
                    break
            yield some
            limit *= 2

    def _size(self, place: "_Place") -> int:
        return self._opened[place.group].sizes[place.structure]

    def _first_read(self, place: "_Place") -> Read:
        if place.structure is Structure.PACKS:
            return PacksFrom(place.group, 0)
        return Names(place.group, place.structure, place.start, b"", _AHEAD)

    def _ordered(self, place: "_Place", page: Reply) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a structure, of which the first page was read."""
        if place.structure is Structure.PACKS:
            found = self._packs_of(place.group, page)
            return ((name, found[name]) for name in sorted(found) if name >= place.start)
        read = self._first_read(place)
        assert isinstance(read, Names)
        names = self._names_from(read, page.values)
        if place.structure is Structure.OUTLYING:
            return self._with_values(place.group, names)
        return map(split_member, names)

    def _packs_of(self, group: int, page: Reply) -> dict[bytes, bytes]:
        """Return the encoded packs of a group by their user keys.

        Args:
            group: The group.
            page: The first page.
        """
        for _ in range(_TRIES):
            found: dict[bytes, bytes] = {}
            while True:
                for name, value in zip(page.values[::2], page.values[1::2], strict=True):
                    if name and value is not None:  # the tag has no name
                        found[name] = value
                if not page.cursor:
                    break
                (page,) = self._replies([PacksFrom(group, page.cursor)])
            # A cursor means nothing to another server that has become the primary meanwhile.
            if len(found) == self._opened[group].sizes[Structure.PACKS]:
                size = sum(len(name) + len(value) for name, value in found.items())
                self.largest_group_bytes = max(self.largest_group_bytes, size)
                return found
            (page,) = self._replies([PacksFrom(group, 0)])
        raise self._unsteady()

    def _with_values(self, group: int, names: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield outlying records with their values."""
        for name, value in self._values(group, names):
            if value is not None:
                yield name, value

    def _values(self, group: int, names: Iterator[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the values of outlying records; as many are read together as fit into memory."""
        count = _FIRST_VALUES
        while some := list(itertools.islice(names, count)):
            (values,) = self._read([Values(group, some)])
            yield from zip(some, values, strict=True)
            size = sum(len(value) for value in values if value is not None)
            count = max(1, min(_PAGE, _VALUES_BYTES * len(some) // (size + 1)))

    def _members(
        self,
        group: int,
        structure: Structure,
        start: bytes,
        first_page: Callable[[int], Sequence[bytes | None]],
    ) -> Iterator[bytes]:
        first = self._opened[group].firsts.get(structure)
        if first is None:
            return
        if first >= start:
            yield first
            if self._opened[group].sizes[structure] == 1:
                return
        page = first_page(group)
        yield from (name for name in page if name is not None and name > first)
        if len(page) == _PAGE and page[-1] is not None:
            yield from self._names(group, structure, page[-1] + b"\0", b"")

    def _names(self, group: int, structure: Structure, start: bytes, end: bytes) -> Iterator[bytes]:
        read = Names(group, structure, start, end, _PAGE)
        (page,) = self._read([read])
        return self._names_from(read, page)

    def _names_from(self, read: Names, page: Sequence[bytes | None]) -> Iterator[bytes]:
        """Yield the names of a page that was read, and those after them."""
        while True:
            last = b""
            for name in page:
                assert name is not None
                yield name
                last = name
            if len(page) < read.limit:
                return
            read = read._replace(start=last + b"\0")
            (page,) = self._read([read])

    def _read(self, reads: Sequence[Read]) -> list[Sequence[bytes | None]]:
        """Return parts of groups at the head, which may be loaded."""
        found = [self._reads.find(read) for read in reads]
        missed = [each for each in found if not isinstance(each, list)]
        if not missed:
            return [each for each in found if isinstance(each, list)]
        if self.must_be_loaded:
            raise MissedReadsError(missed)
        return [reply.values for reply in self._replies(reads)]

    def _replies(self, reads: Sequence[Read]) -> Sequence[Reply]:
        """Read parts of groups at the head; values are whole."""
        return [
            reply._replace(
                values=[*map(self._whole, itertools.repeat(read.group), read.names, reply.values)]
            )
            if isinstance(read, Values)
            else reply
            for read, reply in zip(reads, self._replies_of_store(reads), strict=True)
        ]

    def _whole(self, group: int, name: bytes, coded: bytes | None) -> bytes | None:
        """Return a value, of which the first piece was read."""
        if coded is None:
            return None
        content, others = first_piece(coded)
        if not others:
            return content
        found, names = [content], iter(names_of_others(name, others))
        while some := list(itertools.islice(names, _PIECES)):
            (reply,) = self._replies_of_store([Values(group, some, Structure.PIECES)])
            for piece in reply.values:
                if piece is None:  # their number is right: somebody has replaced one by another
                    raise StateStoreError(self._store.place, "it has a value in wrong pieces")
                found.append(piece)
        return b"".join(found)

    def _replies_of_store(self, reads: Sequence[Read]) -> Sequence[Reply]:
        for _ in range(_TRIES):
            replies = self._store.read(reads)
            wrong = {
                read.group
                for read, reply in zip(reads, replies, strict=True)
                if not self._is_current(read.group, reply.tag)
            }
            if not wrong:
                return replies
            self._advance(wrong)
        raise self._unsteady()

    def _unsteady(self) -> StateStoreError:
        return StateStoreError(
            self._store.place, f"its content has changed {_TRIES} times while it was read"
        )


def after(prefix: bytes) -> bytes:
    """Return what follows all that begins with a prefix, in the order of bytes; empty: nothing."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b""
