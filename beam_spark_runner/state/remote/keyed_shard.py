"""The keyed data of one stage and partition, with its copy in a state store.

The keyed deltas in the checkpoint are authoritative: see ``recovery.copies``. An attempt brings the
groups of its partition to the head, reads them, and stores its changes as the next delta. Only the
task of the next epoch, once that is committed, applies them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.recovery.copies import (
    Apply,
    Decision,
    GroupTag,
    Overtaken,
    Rebuild,
    Use,
    resolve,
)
from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.state.chain import ShardVersion, SliceStart, around
from beam_spark_runner.state.delta import DeltaWriter
from beam_spark_runner.state.remote.key_store import (
    Change,
    Chunk,
    Installation,
    KeyStore,
    Opened,
    OvertakenError,
    StateStoreError,
)
from beam_spark_runner.state.remote.keyed_delta import (
    CHUNK_BYTES,
    CHUNK_CHANGES,
    KeyedDeltas,
    MergedKeys,
    chunks_of,
    write_change,
)
from beam_spark_runner.state.remote.loaded_packs import LoadedPacks, PackCacheAt
from beam_spark_runner.state.remote.locked_keys import LockedKeys
from beam_spark_runner.state.remote.overlay import Overlay
from beam_spark_runner.state.remote.pieces import divided
from beam_spark_runner.state.remote.remote_records import RemoteRecords
from beam_spark_runner.state.remote.stored_entries import StoredEntries
from beam_spark_runner.state.remote.stored_groups import StoredGroups
from beam_spark_runner.state.stored_deltas import ShardStorageError

_TRIES = 10
_SENT_BYTES = 4 << 20  # of chunks that are sent together
_CHANGE_BYTES = 50  # in addition to the content


class KeyedShard:
    """The groups of a stage and partition that one attempt uses, until it is sealed or closed.

    Threads: one at a time.

    Args:
        store: The groups of the stage.
        groups: The groups of the partition.
        key_groups: The number of all groups.
        deltas: The deltas, up to the head of the checkpoint.
        scratch: A folder on the local disk.
        is_shared: Whether a second thread uses the records: one that answers an SDK harness.
        cache: The packs of the worker's last tasks; None: they are not kept.

    Attributes:
        records: The records, with the changes of this attempt.
        batches: Executes requests of many keys together; None: several threads use the records.
        was_rebuilt: Whether groups were rebuilt from the whole chain.

    Raises:
        OvertakenError: The store is ahead of the head.
        StateStoreError: The store does not work.
        CorruptDeltaError: A delta that is needed is damaged or missing.
        ShardStorageError: The local disk or the storage of deltas does not work.
    """

    def __init__(
        self,
        store: KeyStore,
        groups: Sequence[int],
        key_groups: int,
        deltas: KeyedDeltas,
        scratch: Path,
        *,
        is_shared: bool = False,
        cache: PackCacheAt | None = None,
    ) -> None:
        self._store, self._deltas, self._scratch = store, deltas, scratch
        self._cache = cache
        self.was_rebuilt = False
        self._opened = self._advance(groups)
        loaded, own = LoadedPacks(), deltas.head.own
        if cache is not None and own is not None:
            loaded = cache.take(own.delta)
        self._content = StoredGroups(
            store, self._opened, key_groups, self._is_current, self._advance, loaded
        )
        self._entries = StoredEntries(self._content)
        self._overlay = Overlay(scratch)
        self._changed_records = RemoteRecords(self._content, self._overlay)
        self.records: RemoteRecords | LockedKeys = self._changed_records
        self.batches = None if is_shared else self._changed_records
        if is_shared:
            self.records = LockedKeys(self._changed_records)

    @property
    def largest_group_bytes(self) -> int:
        """See ``StoredEntries``."""
        return self._entries.largest_group_bytes

    def __enter__(self) -> "KeyedShard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Discard what is not sealed. May be called again."""
        self._overlay.close()

    def seal(self, version: ShardVersion) -> KeyedHead:
        """Store the changes as a delta.

        Args:
            version: The version of this attempt.

        Returns:
            The new head; that of the checkpoint if nothing was changed.
        """
        name = self._deltas.name(version)
        if self._deltas.has(version):
            raise InvariantError(f"{name} is sealed twice")
        if not self._changed_records.has_changed:
            self._keep_packs(self._deltas.head)
            return self._deltas.head
        writer = None
        try:
            self._scratch.mkdir(parents=True, exist_ok=True)
            writer = DeltaWriter(self._scratch / f".{name}")
            head = self._write(writer, version)
            self._deltas.put(version, writer.path)
        except OSError as error:
            raise ShardStorageError(name, str(error)) from error
        finally:
            if writer is not None:
                writer.abandon()
        self._keep_packs(head)
        return head

    def _keep_packs(self, head: KeyedHead) -> None:
        if self._cache is not None and head.own is not None:
            self._cache.keep(head.own.delta, self._content.loaded)

    def _write(self, writer: DeltaWriter, version: ShardVersion) -> KeyedHead:
        merging = MergedKeys()
        for group, change in self._changed_records.changes():
            merging.add(write_change(writer, group, change), writer.size)
        changes = writer.count
        place = self._deltas.slice_start
        if place is not None:
            place = self._add_slice(writer, place, merging)
        return self._deltas.finish(writer, version, changes, place, merging)

    def _add_slice(self, writer: DeltaWriter, start: SliceStart, merging: MergedKeys) -> SliceStart:
        """Add a slice of as many bytes as were changed; return where the next one begins."""
        full = 2 * writer.size
        for lap, first, end in ((start.lap, start.key, None), (start.lap + 1, b"", start.key)):
            for place, group, entry in self._entries.entries(first, full - writer.size):
                if end is not None and place >= end:
                    break
                if writer.size >= full:
                    return SliceStart(lap, place)
                if not self._changed_records.has_change_of(entry.structure, entry.name):
                    merging.add(write_change(writer, group, entry), writer.size)
        return around(start)

    # -- the copy in the store --------------------------------------------------------------------

    def _is_current(self, group: int, tag: GroupTag) -> bool:
        return isinstance(resolve(tag, self._deltas.history(group)), Use)

    def _advance(self, groups: Collection[int]) -> dict[int, Opened]:
        """Bring groups to the head, and return them as they are there."""
        current: dict[int, Opened] = {}
        left: Collection[int] = groups
        for _ in range(_TRIES):
            opened = dict(zip(left, self._store.open([*left]), strict=True))
            found = self._changed(opened)
            current |= found
            left = [group for group in opened if group not in found]
            if not left:
                return current
        raise StateStoreError(
            self._store.place, f"its groups were not at the head after {_TRIES} tries"
        )

    def _changed(self, opened: dict[int, Opened]) -> dict[int, Opened]:
        """Bring groups nearer to the head; return those that need not be opened again.

        A server where more is missing than the last epoch may be another one than the driver's. If
        each had its copy, every move of a task between their hosts would copy the keys again.
        """
        current: dict[int, Opened] = {}
        to_apply: dict[Apply, dict[int, Opened]] = {}
        to_rebuild: list[int] = []
        decisions: dict[tuple[GroupTag, int], Decision] = {}  # many groups have the same tag
        for group, each in opened.items():
            history = self._deltas.history(group)
            pair = each.tag, id(history)
            if pair not in decisions:
                decisions[pair] = resolve(each.tag, history)
            match decision := decisions[pair]:
                case Use():
                    current[group] = each
                case Apply():
                    to_apply.setdefault(decision, {})[group] = each
                case Rebuild():
                    to_rebuild.append(group)
                case Overtaken():
                    problem = f"group {group} is at {each.tag.complete}, not at {history.head}"
                    raise OvertakenError(self._store.place, problem)
        if to_rebuild or any(
            each.tag.complete is None or not decision.is_direct
            for decision, groups in to_apply.items()
            for each in groups.values()
        ):
            self._store.check_known()
        for decision, groups in to_apply.items():
            current |= self._apply(decision, groups)
        if to_rebuild:
            self._rebuild(to_rebuild)
        return current

    def _apply(self, decision: Apply, opened: Mapping[int, Opened]) -> dict[int, Opened]:
        """Apply versions; return the groups in which the only one of them has changed nothing."""
        expected = {
            group: None if each.tag.complete is None else ShardVersion(*each.tag.complete)
            for group, each in opened.items()
        }
        current: dict[int, Opened] = {}
        is_only = len(decision.versions) == 1
        for each in decision.versions:
            version = ShardVersion(*each)
            changes = self._deltas.changes(version, is_direct=decision.is_direct)
            chunks = chunks_of(changes, expected, version, is_direct=decision.is_direct)
            for some in _together(chunks):
                if not all(self._store.apply(some)):
                    return {}  # another attempt applies, too, or the store has lost something
                for chunk in some if is_only else ():
                    before = opened[chunk.group]
                    if not (chunk.number or chunk.changes or before.tag.applying):
                        current[chunk.group] = before._replace(tag=GroupTag(each))
            expected = dict.fromkeys(expected, version)
        return current

    def _rebuild(self, groups: Collection[int]) -> None:
        self.was_rebuilt = True
        heads = {group: self._deltas.history(group).head for group in groups}
        new = {
            group: self._store.install(group, None if head is None else ShardVersion(*head))
            for group, head in heads.items()
        }
        try:
            self._install(new)
        except BaseException:
            for each in new.values():
                each.abandon()
            raise

    def _install(self, new: Mapping[int, Installation]) -> None:
        collected: dict[int, list[Change]] = {group: [] for group in new}
        sizes = dict.fromkeys(new, 0)
        for group, whole in self._deltas.content(new.keys()):
            for change in divided(whole):
                collected[group].append(change)
                sizes[group] += len(change.name) + len(change.value or b"")
                if len(collected[group]) >= CHUNK_CHANGES or sizes[group] >= CHUNK_BYTES:
                    new[group].add(collected[group])
                    collected[group], sizes[group] = [], 0
        for group, changes in collected.items():
            if changes:
                new[group].add(changes)
            new[group].finish()


def _together(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Group chunks that are sent together."""
    some: list[Chunk] = []
    size = 0
    for chunk in chunks:
        some.append(chunk)
        size += sum(len(each.name) + len(each.value or b"") for each in chunk.changes)
        size += _CHANGE_BYTES * (1 + len(chunk.changes))
        if size >= _SENT_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some
