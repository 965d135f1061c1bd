"""The packs that a task has read, and the cache of them between tasks of a worker."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from beam_spark_runner.recovery.heads import DeltaId
from beam_spark_runner.state.remote import packs
from beam_spark_runner.state.remote.packs import Pack

_PACK_BYTES = 300  # of memory, in addition to the content
_DECODED = 4_000  # packs; a few blocks of keys that are read ahead
_NO_PACK = Pack()


class LoadedPacks:
    """The packs of a stage and partition at one version, by user key, as they are encoded.

    Attributes:
        size_bytes: About the bytes of memory that they take.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._coded: OrderedDict[bytes, bytes | None] = OrderedDict()
        self._decoded: OrderedDict[bytes, Pack] = OrderedDict()
        self._last: tuple[bytes, Pack] | None = None  # a key's records are read together

    def __contains__(self, user_key: bytes) -> bool:
        return user_key in self._coded

    def get(self, user_key: bytes) -> Pack | None:
        """Return the pack of a user key, an empty one if it has none; None: it is not loaded."""
        if self._last is not None and self._last[0] == user_key:
            return self._last[1]
        pack = self._decoded.get(user_key)
        if pack is None:
            if user_key not in self._coded:
                return None
            coded = self._coded[user_key]
            pack = self._decoded[user_key] = _NO_PACK if coded is None else packs.decode(coded)
            if len(self._decoded) > _DECODED:
                self._decoded.popitem(last=False)
        self._coded.move_to_end(user_key)
        self._last = user_key, pack
        return pack

    def put(self, user_key: bytes, coded: bytes | None) -> None:
        """Put the pack of a user key; None: it has none."""
        if user_key in self._coded:
            self._remove(user_key)
        self._last = None
        self._coded[user_key] = coded
        self.size_bytes += _size(user_key, coded)

    def shrink(self, limit_bytes: int, least: int = 0) -> None:
        """Remove what was not used for the longest time, until the rest takes less memory.

        Args:
            limit_bytes: The most memory.
            least: How many packs remain in any case.
        """
        while self.size_bytes > limit_bytes and len(self._coded) > least:
            self._remove(next(iter(self._coded)))

    def _remove(self, user_key: bytes) -> None:
        self._last = None
        self.size_bytes -= _size(user_key, self._coded.pop(user_key))
        self._decoded.pop(user_key, None)


class PackPlace(NamedTuple):
    """Whose packs are in the cache.

    Attributes:
        store: The address of the state store.
        namespace: The namespace of the checkpoint.
        number: The store number of the stage.
        partition: The partition.
    """

    store: str
    namespace: str
    number: int
    partition: int


class PackCache:
    """Packs of the last tasks of a worker, for its next ones. All threads may use it.

    Those of a place count only if the checkpoint's head is the version at which they were kept. The
    numbers of attempts are random, so that an attempt that was not accepted leaves nothing valid.
    """

    def __init__(self) -> None:
        self._using = threading.Lock()
        self._kept: OrderedDict[PackPlace, tuple[DeltaId, LoadedPacks]] = OrderedDict()

    def at(self, place: PackPlace, limit_bytes: int) -> "PackCacheAt":
        """Return what the task of one place needs of the cache.

        Args:
            place: The place.
            limit_bytes: The most memory of all places.
        """

        def keep(version: DeltaId, loaded: LoadedPacks) -> None:
            loaded.shrink(limit_bytes)
            with self._using:
                self._kept[place] = version, loaded
                self._kept.move_to_end(place)
                while sum(each.size_bytes for _, each in self._kept.values()) > limit_bytes:
                    self._kept.popitem(last=False)

        def take(version: DeltaId) -> LoadedPacks:
            with self._using:
                kept, loaded = self._kept.pop(place, (None, None))
            return LoadedPacks() if loaded is None or kept != version else loaded

        return PackCacheAt(take, keep)


class PackCacheAt(NamedTuple):
    """The packs of one place.

    Attributes:
        take: Returns those of a version, which the cache no longer has then.
        keep: Keeps those of a version.
    """

    take: Callable[[DeltaId], LoadedPacks]
    keep: Callable[[DeltaId, LoadedPacks], None]


def _size(user_key: bytes, coded: bytes | None) -> int:
    return _PACK_BYTES + len(user_key) + len(coded or b"")
