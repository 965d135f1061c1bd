"""The changes of one attempt to keyed records, on disk, in the order of their keys."""

from collections.abc import Iterator
from pathlib import Path

import lmdb

from beam_spark_runner.state.local_copy import DiskSpaceCheck, scratch_environment
from beam_spark_runner.state.locked_folder import LockedFolder
from beam_spark_runner.state.stored_deltas import ShardStorageError

_REMOVED, _PUT = b"\0", b"\1"
_PREFIX = "overlay-"


class Overlay:
    """Changed records: their new values, or None for a record that was removed.

    All methods raise ``ShardStorageError`` if the local disk does not work.

    Args:
        folder: A folder on the local disk, in which the first change makes a temporary one. Then
            those that killed processes have left there are removed.

    Attributes:
        changes: How many changes were made, so that readers notice new ones.
    """

    def __init__(self, folder: Path) -> None:
        self.changes = 0
        self._folder = folder
        self._file: _OverlayFile | None = None

    def close(self) -> None:
        """Remove everything. May be called again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def get(self, key: bytes) -> tuple[bool, bytes | None]:
        """Return whether a record was changed, and its new value."""
        if self._file is None:
            return False, None
        try:
            coded = self._file.txn.get(key)
        except lmdb.Error as error:
            raise self._failed(error) from error
        return (False, None) if coded is None else (True, _value_of(coded))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the new value of a record; None: it is removed."""
        try:
            if self._file is None:
                self._file = _OverlayFile(self._folder)
            self._file.room.reserve(len(key) + len(value or b""))
            self._file.txn.put(key, _REMOVED if value is None else _PUT + value)
        except (OSError, lmdb.Error) as error:
            raise self._failed(error) from error
        self.changes += 1

    def forget(self, key: bytes) -> None:
        """Undo the change of a record, if there is one."""
        if self._file is None:
            return
        try:
            self._file.txn.delete(key)
        except lmdb.Error as error:
            raise self._failed(error) from error
        self.changes += 1

    def next(self, start: bytes, *, is_passed: bool = False) -> tuple[bytes, bytes | None] | None:
        """Return the first changed record at or after a key, or only after it if ``is_passed``."""
        if self._file is None:
            return None
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
            self.room = DiskSpaceCheck(self._folder.path)
        except BaseException:
            self._folder.remove()
            raise

    def close(self) -> None:
        """Remove the file."""
        self.txn.abort()  # LMDB would wait for it forever if another thread has begun it
        self._env.close()
        self._folder.remove()


def _value_of(coded: bytes) -> bytes | None:
    return coded[1:] if coded[:1] == _PUT else None
