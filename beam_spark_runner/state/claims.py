"""Locks on folders of local copies: one attempt at a time works in each."""

import fcntl
import glob
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Claim:
    """An exclusive lock on a folder.

    Attributes:
        folder: of an LMDB environment; may not be there yet.
        is_private: another attempt has the folder of the shard; this one is removed at the end.
    """

    folder: Path
    is_private: bool
    _lock_path: Path
    _lock: int

    def release(self, *, remove: bool) -> None:
        """Release the lock.

        Args:
            remove: also the content of the folder.
        """
        try:
            if remove or self.is_private:
                remove_copy(self.folder)
            if self.is_private:
                self._lock_path.unlink(missing_ok=True)
        finally:
            # Closing alone would not do: a child that user code has forked has the file, too.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)


def claim_copy(local: Path, name: str) -> Claim:
    """Lock the local copy of a shard; if another attempt has locked it, a new private folder.

    Args:
        local: folder of all copies.
        name: of the shard.

    Raises:
        OSError: the disk cannot be read or written.
    """
    folder, is_private = local / name, False
    while (lock := _try_lock(path := local / f"{folder.name}.lock")) is None:
        folder, is_private = local / f".{name}-{secrets.token_hex(8)}", True
    return Claim(folder, is_private, path, lock)


def _try_lock(path: Path) -> int | None:
    """Lock a file, which is created if it is missing; None: another process has locked it."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous owner of the lock may have removed the file.
        if os.path.samestat(os.fstat(lock), path.stat()):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None


def sweep(local: Path, name: str) -> None:
    """Remove the private copies of a shard whose attempts were killed."""
    for path in local.glob(f".{glob.escape(name)}-*.lock"):
        if (lock := _try_lock(path)) is not None:
            Claim(path.with_suffix(""), True, path, lock).release(remove=True)


def building_place(folder: Path) -> Path:
    """Return the place of a copy that is not complete yet."""
    return folder.with_name(f"{folder.name}.new")


def remove_copy(folder: Path) -> None:
    """Remove a copy, complete or not. If that fails, building the next copy raises an error."""
    for each in (folder, building_place(folder)):
        shutil.rmtree(each, ignore_errors=True)
