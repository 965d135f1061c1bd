"""Locks on the folders of local copies: each is used by one attempt at a time."""

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
        folder: The folder of an LMDB environment, which may not exist yet.
        is_private: Whether the folder is this attempt's own, since another attempt has claimed
            the shard's. ``release`` removes it.
    """

    folder: Path
    is_private: bool
    _lock_path: Path
    _lock: int

    def release(self, *, remove: bool) -> None:
        """Release the lock.

        Args:
            remove: Whether to remove the folder. A private one is always removed.
        """
        try:
            if remove or self.is_private:
                remove_copy(self.folder)
            if self.is_private:
                self._lock_path.unlink(missing_ok=True)
        finally:
            # Closing is not enough: a process that user code has forked shares the open file.
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)


def claim_copy(local: Path, name: str) -> Claim:
    """Lock the local copy of a shard; if another attempt has locked it, a new private folder.

    Args:
        local: The folder of all copies.
        name: The name of the shard.

    Raises:
        OSError: The disk cannot be read or written.
    """
    folder, is_private = local / name, False
    while (lock := _try_lock(path := local / f"{folder.name}.lock")) is None:
        folder, is_private = local / f".{name}-{secrets.token_hex(8)}", True
    return Claim(folder, is_private, path, lock)


def _try_lock(path: Path) -> int | None:
    """Lock a file, which is created if it is missing; None: it is already locked."""
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
    """Return the folder in which a copy is built before it is renamed to ``folder``."""
    return folder.with_name(f"{folder.name}.new")


def remove_copy(folder: Path) -> None:
    """Remove a copy, complete or not. If that fails, building the next copy raises an error."""
    for place in (folder, building_place(folder)):
        shutil.rmtree(place, ignore_errors=True)
