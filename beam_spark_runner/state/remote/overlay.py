"""The changes of one attempt to keyed records, in the order of their keys."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from pathlib import Path

import lmdb

from beam_spark_runner.state.local_copy import DiskSpaceCheck, scratch_environment
from beam_spark_runner.state.locked_folder import LockedFolder, remove_unlocked
from beam_spark_runner.state.stored_deltas import ShardStorageError

_REMOVED, _PUT = b"\0", b"\1"
_PREFIX = "overlay-"
_FEW = 1_000  # changed records that are in memory; a file takes a millisecond to begin
_FEW_BYTES = 1 << 20


class Overlay:
    """Changed records: their new values, or None for a record that was removed.

    A few are in memory, more of them on disk. All methods raise ``ShardStorageError`` if the local
    disk does not work.

    Args:
        folder: A folder on the local disk, in which many changes make a temporary one. The first
            change removes those that killed processes have left there.

    Attributes:
        changes: How many changes were made, so that readers notice new ones.
    """

    def __init__(self, folder: Path) -> None:
        self.changes = 0
        self._folder = folder
        self._few: dict[bytes, bytes | None] = {}
        self._few_keys: list[bytes] = []  # in their order
        self._few_bytes = 0
        self._has_cleared = False
        self._file: _OverlayFile | None = None

    def close(self) -> None:
        """Remove everything. May be called again."""
        self._few, self._few_keys = {}, []
        if self._file is not None:
            self._file.close()
            self._file = None

    def get(self, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether a record was changed, and its new value."""
        if self._file is None:
            value = self._few.get(key)
            return value is not None or key in self._few, value
        try:
            coded = self._file.txn.get(key)
        except lmdb.Error as error:
            raise self._failed(error) from error
        return (False, None) if coded is None else (True, _value_of(coded))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the new value of a record; None: it is removed."""
        if not self._has_cleared:
            self._has_cleared = True
            remove_unlocked(self._folder, _PREFIX)
        self.changes += 1
        if self._file is None:
            if key not in self._few:
                insort(self._few_keys, key)
            self._few[key] = value
            self._few_bytes += len(key) + len(value or b"")  # what was replaced counts, too
            if len(self._few) > _FEW or self._few_bytes > _FEW_BYTES:
                self._begin_file()
            return
        try:
            self._file.put(key, value)
        except (OSError, lmdb.Error) as error:
            raise self._failed(error) from error

    def _begin_file(self) -> None:
        try:
            self._file = _OverlayFile(self._folder)
            for key in self._few_keys:
                self._file.put(key, self._few[key])
        except (OSError, lmdb.Error) as error:
            raise self._failed(error) from error
        self._few, self._few_keys = {}, []

    def forget(self, key: bytes) -> None:
        """Undo the change of a record, if there is one."""
        self.changes += 1
        if self._file is None:
            if key in self._few:
                del self._few[key], self._few_keys[bisect_left(self._few_keys, key)]
            return
        try:
            self._file.txn.delete(key)
        except lmdb.Error as error:
            raise self._failed(error) from error

    def next(self, start: bytes, *, is_passed: bool = False) -> tuple[bytes, bytes | None] | None:
        """Return the first changed record at or after a key, or only after it if ``is_passed``."""
        if self._file is None:
            place = bisect_left(self._few_keys, start)
            if is_passed and place < len(self._few_keys) and self._few_keys[place] == start:
                place += 1
            if place == len(self._few_keys):
                return None
            key = self._few_keys[place]
            return key, self._few[key]
        try:
            cursor = self._file.txn.cursor()
            is_valid = cursor.set_range(start) if start else cursor.first()
            if is_valid and is_passed and cursor.key() == start:
                is_valid = cursor.next()
            return (cursor.key(), _value_of(cursor.value())) if is_valid else None
        except lmdb.Error as error:
            raise self._failed(error) from error

    def items(self, prefix: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the changed records whose keys begin with a prefix. None may be changed meanwhile.

        Args:
            prefix: The prefix.
        """
        if self._file is None:
            for place in range(bisect_left(self._few_keys, prefix), len(self._few_keys)):
                key = self._few_keys[place]
                if not key.startswith(prefix):
                    return
                yield key, self._few[key]
            return
        try:
            cursor = self._file.txn.cursor()
            is_valid = cursor.set_range(prefix) if prefix else cursor.first()
            while is_valid and (key := cursor.key()).startswith(prefix):
                yield key, _value_of(cursor.value())
                is_valid = cursor.next()
        except lmdb.Error as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> ShardStorageError:
        return ShardStorageError(str(self._folder), str(error))


class _OverlayFile:
    """The file of an overlay, which one process uses.

    Args:
        parent: Where its folder is made.

    Raises:
        OSError: The disk does not work.
        lmdb.Error: Likewise.
    """

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        self._folder = LockedFolder(parent, _PREFIX)
        try:
            self._env = scratch_environment(self._folder.path)
            self.txn = self._env.begin(write=True)
            self._room = DiskSpaceCheck(self._folder.path)
        except BaseException:
            self._folder.remove()
            raise

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the new value of a record; None: it is removed."""
        self._room.reserve(len(key) + len(value or b""))
        self.txn.put(key, _REMOVED if value is None else _PUT + value)

    def close(self) -> None:
        """Remove the file."""
        self.txn.abort()  # LMDB would wait for it forever if another thread has begun it
        self._env.close()
        self._folder.remove()


def _value_of(coded: bytes) -> bytes | None:
    return coded[1:] if coded[:1] == _PUT else None
