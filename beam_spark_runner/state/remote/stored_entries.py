"""Reads all entries of groups in order, for slices of the state store's content."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_spark_runner.state.remote.key_store import (
    INDEXES,
    SLICED,
    Change,
    Names,
    PacksFrom,
    Read,
    Reply,
    Structure,
)
from beam_spark_runner.state.remote.keyed_keys import delta_key, split_member
from beam_spark_runner.state.remote.stored_groups import TRIES, StoredGroups, after

_AHEAD = 4_000  # the most entries of a structure that are read together, but for packs
_AHEAD_BYTES = 1 << 20  # about the most bytes that are read together
_ENTRY_BYTES = {**dict.fromkeys(INDEXES, 32), Structure.PACKS: 128, Structure.OUTLYING: 256}


class _Place(NamedTuple):
    """Where entries begin: in a structure of a group, at a name."""

    group: int
    structure: Structure
    start: bytes


class StoredEntries:
    """The entries of some groups. All methods raise ``StateStoreError``, see ``StoredGroups``.

    Args:
        groups: The groups.

    Attributes:
        largest_group_bytes: Of all groups whose packs were read as a whole, the most bytes.
    """

    def __init__(self, groups: StoredGroups) -> None:
        self._groups = groups
        self.largest_group_bytes = 0

    def entries(self, start: bytes, wanted_bytes: int) -> Iterator[tuple[bytes, int, Change]]:
        """Yield all entries, in the order of their keys in deltas.

        Args:
            start: The least key.
            wanted_bytes: About how many bytes of them are taken. So much is read together.

        Yields:
            The key of an entry, its group, and the entry. The packs of some groups are in memory.
        """
        wanted_bytes = max(1, min(_AHEAD_BYTES, wanted_bytes))
        for some in self._read_together(self._places(start), wanted_bytes):
            reads = [self._first_read(each, wanted_bytes) for each in some]
            pages = self._groups.replies(reads)
            self._load_values(reads, pages, wanted_bytes)
            for place, read, page in zip(some, reads, pages, strict=True):
                prefix = delta_key(place.group, place.structure)
                for name, value in self._ordered(place, read, page):
                    yield prefix + name, place.group, Change(place.structure, name, value)

    def _places(self, start: bytes) -> Iterator[_Place]:
        """Yield the structures that have entries, in the order of their keys in deltas."""
        opened = self._groups.opened
        for group in sorted(opened):
            sizes = opened[group].sizes
            for structure in SLICED:
                if not sizes[structure]:  # so are most, if there is little
                    continue
                prefix = delta_key(group, structure)
                if start < after(prefix):
                    first = start[len(prefix) :] if start.startswith(prefix) else b""
                    yield _Place(group, structure, first)

    def _read_together(self, places: Iterator[_Place], wanted_bytes: int) -> Iterator[list[_Place]]:
        """Group structures whose first pages are read together: those that may be enough."""
        some: list[_Place] = []
        size = 0
        for place in places:
            some.append(place)
            size += self._size(place) * _ENTRY_BYTES[place.structure]
            if size >= wanted_bytes:
                yield some
                some, size = [], 0
        if some:
            yield some

    def _size(self, place: _Place) -> int:
        return self._groups.opened[place.group].sizes[place.structure]

    def _first_read(self, place: _Place, wanted_bytes: int) -> Read:
        if place.structure is Structure.PACKS:
            return PacksFrom(place.group, 0)
        limit = min(_AHEAD, 1 + wanted_bytes // _ENTRY_BYTES[place.structure])
        return Names(place.group, place.structure, place.start, b"", limit)

    def _load_values(
        self, reads: Sequence[Read], pages: Sequence[Reply], wanted_bytes: int
    ) -> None:
        """Load the values of outlying records in pages of names, of all groups together."""
        names = (
            name
            for read, page in zip(reads, pages, strict=True)
            if isinstance(read, Names) and read.structure is Structure.OUTLYING
            for name in page.values
            if name is not None
        )
        self._groups.load_values(names, wanted_bytes)

    def _ordered(self, place: _Place, read: Read, page: Reply) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries of a structure, of which the first page was read."""
        if not isinstance(read, Names):
            found = self._packs_of(place.group, page)
            return ((name, found[name]) for name in sorted(found) if name >= place.start)
        names = self._groups.names_from(read, page.values)
        if place.structure is Structure.OUTLYING:
            return self._groups.with_values(place.group, names)
        return map(split_member, names)

    def _packs_of(self, group: int, page: Reply) -> dict[bytes, bytes]:
        """Return the encoded packs of a group by their user keys.

        Args:
            group: The group.
            page: The first page.
        """
        for _ in range(TRIES):
            found: dict[bytes, bytes] = {}
            while True:
                for name, value in zip(page.values[::2], page.values[1::2], strict=True):
                    if name and value is not None:  # the tag has no name
                        found[name] = value
                if not page.cursor:
                    break
                (page,) = self._groups.replies([PacksFrom(group, page.cursor)])
            # A cursor means nothing to another server that has become the primary meanwhile.
            if len(found) == self._groups.opened[group].sizes[Structure.PACKS]:
                size = sum(len(name) + len(value) for name, value in found.items())
                self.largest_group_bytes = max(self.largest_group_bytes, size)
                return found
            (page,) = self._groups.replies([PacksFrom(group, 0)])
        raise self._groups.unsteady()
