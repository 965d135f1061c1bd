"""A state store in memory, as ``KeyStore`` describes it. It may lose its last changes."""

import copy
from collections.abc import Callable, Sequence

from beam_spark_runner.recovery.copies import GroupTag
from beam_spark_runner.recovery.heads import DeltaId
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.remote.key_store import (
    INDEXES,
    Change,
    Chunk,
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
from beam_spark_runner.state.remote.pieces import first_piece, names_of_others


class Group:
    """One group, with its tag."""

    def __init__(self) -> None:
        self.complete: ShardVersion | None = None
        self.applying: ShardVersion | None = None
        self.is_direct = False
        self.following = 0
        self.counts = dict.fromkeys(Structure, 0)
        self.entries: dict[Structure, dict[bytes, bytes]] = {each: {} for each in Structure}

    def change(self, changes: Sequence[Change]) -> None:
        for structure, name, value in changes:
            if structure is Structure.OUTLYING:
                self._remove_pieces(name, 0 if value is None else first_piece(value).others)
            entries = self.entries[structure]
            before = len(entries)
            if value is None:
                entries.pop(name, None)
            else:
                entries[name] = value
            self.counts[structure] += len(entries) - before

    def _remove_pieces(self, name: bytes, kept: int) -> None:
        old = self.entries[Structure.OUTLYING].get(name)
        names = () if old is None else names_of_others(name, first_piece(old).others)
        for each in names[kept:]:
            self.change([Change(Structure.PIECES, each, None)])

    def sizes(self) -> dict[Structure, int]:
        return {each: len(entries) for each, entries in self.entries.items()}

    def tag(self) -> GroupTag:
        complete, applying = (
            None if each is None else DeltaId(*each) for each in (self.complete, self.applying)
        )
        return GroupTag(complete, applying, self.counts == self.sizes())

    def members(self, structure: Structure) -> list[bytes]:
        entries = self.entries[structure]
        if structure in INDEXES:
            return sorted(name + value for name, value in entries.items())
        return sorted(entries)


class SimulatedStore:
    """See ``KeyStore``. It can be set back to an earlier moment.

    Attributes:
        groups: All groups.
        installed: New content of groups, which is not complete.
        calls: How many calls there were.
        fails_after: How many calls there are before one that fails. None: all succeed.
        loses_after: How many calls there are before the store is set back, within an attempt.
        lost_to: The content to which it is set back.
        on_call: Called before each call; it may raise a ``StateStoreError``.
        is_known: Whether the namespace is claimed.
    """

    place = "the simulated store"

    def __init__(self) -> None:
        self.groups: dict[int, Group] = {}
        self.installed: dict[SimulatedInstallation, Group] = {}
        self.calls = 0
        self.fails_after: int | None = None
        self.loses_after: int | None = None
        self.lost_to: dict[int, Group] = {}
        self.on_call: Callable[[], None] = lambda: None
        self.is_known: Callable[[], bool] = lambda: True

    def snapshot(self) -> dict[int, Group]:
        return copy.deepcopy(self.groups)

    def _group(self, number: int) -> Group:
        return self.groups.setdefault(number, Group())

    def _call(self) -> None:
        self.on_call()
        self.calls += 1
        if self.fails_after == 0:
            self.fails_after = None
            raise StateStoreError(self.place, "it does not answer")
        if self.fails_after is not None:
            self.fails_after -= 1
        if self.loses_after == 0:
            self.groups |= copy.deepcopy(self.lost_to)
            self.installed.clear()
        if self.loses_after is not None:
            self.loses_after = self.loses_after - 1 if self.loses_after else None

    def check_known(self) -> None:
        self._call()
        if not self.is_known():
            raise StateStoreError(self.place, "it does not know the namespace")

    def open(self, groups: Sequence[int]) -> Sequence[Opened]:
        self._call()
        opened = []
        for group in map(self._group, groups):
            firsts = {each: group.members(each)[0] for each in INDEXES if group.entries[each]}
            opened.append(Opened(group.tag(), group.sizes(), firsts))
        return opened

    def read(self, reads: Sequence[Read]) -> Sequence[Reply]:
        self._call()
        return [self._reply(read) for read in reads]

    def _reply(self, read: Read) -> Reply:
        group = self._group(read.group)
        tag = group.tag()
        match read:
            case Packs(_, names):
                return Reply(tag, [group.entries[Structure.PACKS].get(name) for name in names])
            case Values(_, names, structure):
                return Reply(tag, [group.entries[structure].get(name) for name in names])
            case Known(_, names):
                outlying = group.entries[Structure.OUTLYING]
                return Reply(tag, [b"" if name in outlying else None for name in names])
            case Names(_, structure, start, end, limit):
                found = [
                    member
                    for member in group.members(structure)
                    if member >= start and (not end or member < end)
                ]
                return Reply(tag, found[:limit])
        entries = group.entries[Structure.PACKS]
        return Reply(tag, [part for item in entries.items() for part in item])

    def apply(self, chunks: Sequence[Chunk]) -> Sequence[bool]:
        self._call()
        return [self._accepts(chunk) for chunk in chunks]

    def _accepts(self, chunk: Chunk) -> bool:
        group = self._group(chunk.group)
        if group.complete == chunk.version:
            return True
        if group.complete != chunk.expected:
            return False
        following = 0
        if group.applying == chunk.version:
            following = group.following if group.is_direct == chunk.is_direct else 0
        elif group.applying is not None and group.applying.epoch >= chunk.version.epoch:
            return False
        if chunk.number > following:
            return False
        group.change(chunk.changes)
        group.applying, group.is_direct = chunk.version, chunk.is_direct
        group.following = max(following, chunk.number + 1)
        if chunk.is_last:
            group.complete, group.applying = chunk.version, None
        return True

    def install(self, group: int, version: ShardVersion | None) -> "SimulatedInstallation":
        return SimulatedInstallation(self, group, version)

    def drop(self, groups: Sequence[int]) -> None:
        self._call()
        for group in groups:
            self.groups.pop(group, None)


class SimulatedInstallation:
    """See ``Installation``. What it has made is lost together with the rest."""

    def __init__(self, store: SimulatedStore, number: int, version: ShardVersion | None) -> None:
        self._store, self._number, self._version = store, number, version
        self._added = 0

    def add(self, changes: Sequence[Change]) -> None:
        self._store._call()
        new = self._checked()
        new.change(changes)
        new.following += 1
        self._added += 1

    def _checked(self) -> Group:
        new = self._store.installed.setdefault(self, Group())
        if new.following != self._added:
            raise StateStoreError(self._store.place, "it has lost what was just written to it")
        return new

    def finish(self) -> None:
        self._store._call()
        there, new = self._store._group(self._number), self._checked()
        del self._store.installed[self]
        before = -1 if there.complete is None else there.complete.epoch
        now = -1 if self._version is None else self._version.epoch
        if before > now or (before == now and there.tag().is_whole):
            return
        new.complete, new.following = self._version, 0
        self._store.groups[self._number] = new

    def abandon(self) -> None:
        self._store.installed.pop(self, None)
