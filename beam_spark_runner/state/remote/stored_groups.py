"""Reads the groups of one stage and partition in a state store, at the head of the checkpoint."""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from beam_spark_runner.core.key_groups import group_of
from beam_spark_runner.recovery.copies import GroupTag
from beam_spark_runner.state.remote.key_store import (
    KeyStore,
    Known,
    Names,
    Opened,
    Packs,
    Read,
    Reply,
    StateStoreError,
    Structure,
    Values,
)
from beam_spark_runner.state.remote.keyed_keys import split_user_key
from beam_spark_runner.state.remote.loaded_packs import LoadedPacks
from beam_spark_runner.state.remote.loaded_reads import LoadedReads, MissedReadsError, merged
from beam_spark_runner.state.remote.packs import Pack
from beam_spark_runner.state.remote.pieces import first_piece, names_of_others
from beam_spark_runner.state.store_keys import hash_of_owner

LOADED_BYTES = 64 << 20
"""The most bytes of packs that a stage has in memory."""

TRIES = 5
"""How often something is read, if its version has changed meanwhile."""

_PAGE = 500  # names or members that are read together at first
_LARGEST_PAGE = 8_000  # likewise later: pages become longer
_LONGER = 4  # times
_FIRST_VALUES = 16  # outlying values that are read together at first, whatever their sizes
_MAX_VALUES = 2_000  # of any keys that are read together
_VALUES_BYTES = 1 << 20  # about as many bytes of them are read together
_VALUES_AHEAD_BYTES = 8 << 20  # of values that are read before they are needed
_PIECES = 8  # pieces of a value that are read together


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
        opened: The groups as they were opened at the head.
        loaded: The packs that are in memory.
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
        self._store, self.opened, self._key_groups = store, opened, key_groups
        self._is_current, self._advance = is_current, advance
        self.loaded = loaded
        self._reads = LoadedReads(LOADED_BYTES)
        self._indexed: dict[Structure, Sequence[int]] = {}
        self.must_be_loaded = False

    def load(self, missed: Sequence[Read]) -> None:
        """Load what requests have missed, in one round trip."""
        reads = [*merged(missed)]
        for read, reply in zip(reads, self.replies(reads), strict=True):
            if isinstance(read, Packs):
                for name, value in zip(read.names, reply.values, strict=True):
                    self.keep(name, value)
            elif isinstance(read, Values | Names):
                self._reads.keep(read, reply.values)

    def load_values(self, names: Iterable[bytes], limit_bytes: int) -> None:
        """Load outlying records by user key and name; as many together as fit into memory.

        Args:
            names: The names.
            limit_bytes: Once so many bytes of values are loaded, the others are not.
        """
        names = iter(names)
        count, loaded = _FIRST_VALUES, 0
        while loaded < limit_bytes and (some := list(itertools.islice(names, count))):
            missing = self._reads.find(Values(0, some))
            if isinstance(missing, Values):
                self.load([Values(self.group_of(name), [name]) for name in missing.names])
            found = self._reads.find(Values(0, some))
            size = sum(len(value or b"") for value in found) if isinstance(found, list) else 0
            count = max(1, min(_MAX_VALUES, _VALUES_BYTES * len(some) // (size + 1)))
            loaded += size

    def ask_outlying(self, names: Iterable[bytes]) -> None:
        """Load outlying records of one user key, by user key and name, up to some MB."""
        names = list(names)
        if not self.must_be_loaded:
            self.load_values(names, _VALUES_AHEAD_BYTES)
        elif names:
            for _ in self._values(self.group_of(names[0]), iter(names)):
                pass  # each is loaded, or missed

    def ask_values(self, user_keys: Sequence[bytes]) -> None:
        """Load the packs of user keys, and what they have outside of packs, up to some MB."""
        self.ask(user_keys)
        reads = [self._all_names(each) for each in user_keys if self.pack(each).outlying]
        self._load_missing(reads)
        pages = (found for each in reads if isinstance(found := self._reads.find(each), list))
        names = (name for page in pages for name in page if name is not None)
        self.load_values(names, _VALUES_AHEAD_BYTES)

    def count(self, structure: Structure) -> int:
        """Return the number of entries of all groups."""
        return sum(each.sizes[structure] for each in self.opened.values())

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
            if self.opened[group].sizes[Structure.PACKS]:
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

    def existing(self, names: Iterable[bytes]) -> set[bytes]:
        """Return which outlying records exist, by user key and name."""
        names, found = iter(names), set[bytes]()
        while some := list(itertools.islice(names, _MAX_VALUES)):
            reads = [*merged([Known(self.group_of(name), [name]) for name in some])]
            for read, reply in zip(reads, self.replies(reads), strict=True):
                assert isinstance(read, Known)
                of_group = zip(read.names, reply.values, strict=True)
                found |= {name for name, value in of_group if value is not None}
        return found

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
        return self.with_values(self.group_of(prefix), self.outlying_names(start, prefix))

    def outlying_names(self, start: bytes, prefix: bytes) -> Iterator[bytes]:
        """Yield the user key and name of outlying records; see ``outlying_from``."""
        group, first = self.group_of(prefix), max(start, prefix)
        known = self._reads.find(self._all_names(split_user_key(prefix).user_key))
        if isinstance(known, list) and len(known) < _PAGE:
            found = [each for each in known if each is not None and each.startswith(prefix)]
            return (each for each in found if each >= first)
        return self._names(group, Structure.OUTLYING, first, after(prefix))

    def _all_names(self, user_key: bytes) -> Names:
        """Return the read of the first outlying records of a user key, normally of all."""
        group = self.group_of(user_key)
        return Names(group, Structure.OUTLYING, user_key, after(user_key), _PAGE)

    def members(self, structure: Structure, start: bytes) -> Iterator[bytes]:
        """Yield the members of an index, of all groups, in their order.

        Args:
            structure: The index.
            start: The least member.
        """
        indexed = self._with_members(structure)
        pages: dict[int, Sequence[bytes | None]] = {}

        def first_page(group: int) -> Sequence[bytes | None]:
            """Read the first members of all groups together, once those of one are needed."""
            if not pages:
                groups = [each for each in indexed if self.opened[each].sizes[structure] > 1]
                reads = [self._first_page(each, structure, start) for each in groups]
                if not self.must_be_loaded:
                    self._load_missing([*reads, *self._holds_after(structure)])
                pages.update(zip(groups, self._read(reads), strict=True))
            return pages[group]

        return heapq.merge(
            *(self._members(group, structure, start, first_page) for group in indexed)
        )

    def _first_page(self, group: int, structure: Structure, start: bytes) -> Names:
        """Return the read of the first members from one on; of all members, it is always equal."""
        if start <= self.opened[group].firsts[structure]:
            start = b""
        return Names(group, structure, start, b"", _PAGE)

    def _holds_after(self, structure: Structure) -> list[Names]:
        """Return reads of holds, if due times are read: timers that fire change the least hold."""
        if structure is Structure.HOLDS:
            return []
        return [
            self._first_page(each, Structure.HOLDS, b"")
            for each in self._with_members(Structure.HOLDS)
            if self.opened[each].sizes[Structure.HOLDS] > 1
        ]

    def _load_missing(self, reads: Sequence[Names]) -> None:
        missing = [each for each in reads if not isinstance(self._reads.find(each), list)]
        if missing:
            self.load(missing)

    def _with_members(self, structure: Structure) -> Sequence[int]:
        """Return the groups of which an index has members: few of all, if little is to be done."""
        found = self._indexed.get(structure)
        if found is None:
            found = [group for group, each in self.opened.items() if structure in each.firsts]
            self._indexed[structure] = found
        return found

    def with_values(self, group: int, names: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the outlying records of a group that have some names, with their values."""
        for name, value in self._values(group, names):
            if value is not None:
                yield name, value

    def _values(self, group: int, names: Iterator[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the values of outlying records; as many are read together as fit into memory."""
        count, wanted = _FIRST_VALUES, _VALUES_BYTES
        while some := list(itertools.islice(names, count)):
            (values,) = self._read([Values(group, some)])
            yield from zip(some, values, strict=True)
            size = sum(len(value) for value in values if value is not None)
            count = max(1, min(_MAX_VALUES, wanted * len(some) // (size + 1)))
            wanted = min(_LONGER * wanted, _VALUES_AHEAD_BYTES)

    def _members(
        self,
        group: int,
        structure: Structure,
        start: bytes,
        first_page: Callable[[int], Sequence[bytes | None]],
    ) -> Iterator[bytes]:
        first = self.opened[group].firsts[structure]
        if first >= start:
            yield first
        if self.opened[group].sizes[structure] == 1:
            return
        page = first_page(group)
        yield from (name for name in page if name is not None and name > first)
        if len(page) == _PAGE and page[-1] is not None:
            yield from self._names(group, structure, page[-1] + b"\0", b"")

    def _names(self, group: int, structure: Structure, start: bytes, end: bytes) -> Iterator[bytes]:
        read = Names(group, structure, start, end, _PAGE)
        (page,) = self._read([read])
        return self.names_from(read, page)

    def names_from(self, read: Names, page: Sequence[bytes | None]) -> Iterator[bytes]:
        """Yield the names of a page that was read, and those after them."""
        while True:
            last = b""
            for name in page:
                assert name is not None
                yield name
                last = name
            if len(page) < read.limit:
                return
            longer = min(_LONGER * read.limit, _LARGEST_PAGE)
            read = read._replace(start=last + b"\0", limit=longer)
            (page,) = self._read([read])

    def _read(self, reads: Sequence[Read]) -> list[Sequence[bytes | None]]:
        """Return parts of groups at the head, which may be loaded."""
        found = [self._reads.find(read) for read in reads]
        missed = [each for each in found if not isinstance(each, list)]
        if not missed:
            return [each for each in found if isinstance(each, list)]
        if self.must_be_loaded:
            raise MissedReadsError(missed)
        return [reply.values for reply in self.replies(reads)]

    def replies(self, reads: Sequence[Read]) -> Sequence[Reply]:
        """Read parts of groups at the head; values are whole."""
        return [
            reply._replace(
                values=[*map(self._whole, itertools.repeat(read.group), read.names, reply.values)]
            )
            if isinstance(read, Values)
            else reply
            for read, reply in zip(reads, self._checked_replies(reads), strict=True)
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
            (reply,) = self._checked_replies([Values(group, some, Structure.PIECES)])
            for piece in reply.values:
                if piece is None:  # their number is right: somebody has replaced one by another
                    raise StateStoreError(self._store.place, "it has a value in wrong pieces")
                found.append(piece)
        return b"".join(found)

    def _checked_replies(self, reads: Sequence[Read]) -> Sequence[Reply]:
        for _ in range(TRIES):
            replies = self._store.read(reads)
            wrong = {
                read.group
                for read, reply in zip(reads, replies, strict=True)
                if not self._is_current(read.group, reply.tag)
            }
            if not wrong:
                return replies
            self._advance(wrong)
        raise self.unsteady()

    def unsteady(self) -> StateStoreError:
        """Return the error that there was no time to read anything at one version."""
        return StateStoreError(
            self._store.place, f"its content has changed {TRIES} times while it was read"
        )


def after(prefix: bytes) -> bytes:
    """Return what follows all that begins with a prefix, in the order of bytes; empty: nothing."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b""
