"""The storage of files that tasks write and a manifest names: deltas, views, rows."""

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


class DeltaFiles(Protocol):
    """The storage of deltas, shared by the driver and all executors."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading.

        Raises:
            FileNotFoundError: There is no file of this name.
            OSError: The storage cannot be read.
        """
        ...

    def put(self, name: str, local: Path) -> None:
        """Store a copy of a finished local file, whole or not at all.

        It is durable before a manifest names it.

        Raises:
            OSError: The storage is full or unavailable.
        """
        ...


@dataclass(frozen=True)
class FolderOfDeltas(DeltaFiles):
    """See ``DeltaFiles``: a local folder, or one that all hosts mount.

    Attributes:
        folder: The folder, which must exist. It is not created: its mount may be missing.
        syncs: Whether ``put`` makes the file durable. If not, the driver, which is on the same
            machine, does so: see ``CheckpointFolder.create``.
    """

    folder: Path
    syncs: bool = True

    def open(self, name: str) -> BinaryIO:
        """See ``DeltaFiles.open``."""
        return (self.folder / name).open("rb")

    def put(self, name: str, local: Path) -> None:
        """See ``DeltaFiles.put``."""
        hidden = self.folder / f".{name}.{secrets.token_hex(4)}"
        try:
            with local.open("rb") as source, hidden.open("xb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
                target.flush()
                if self.syncs:
                    os.fsync(target.fileno())
            hidden.rename(self.folder / name)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
        if not self.syncs:
            return
        # The new name is an entry of the folder, so that the folder is synced, too.
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
