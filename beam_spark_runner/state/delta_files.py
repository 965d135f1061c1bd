"""Where tasks store what the manifest of their epoch will name: deltas, views, rows."""

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


class DeltaFiles(Protocol):
    """Where deltas are stored: all executors and the driver see the same."""

    def open(self, name: str) -> BinaryIO:
        """Open a file for reading.

        Raises:
            FileNotFoundError: there is none of this name.
            OSError: the storage cannot be read.
        """
        ...

    def put(self, name: str, local: Path) -> None:
        """Store a copy of a finished local file: whole, or not at all.

        It is durable by the time that a manifest names it.

        Raises:
            OSError: the storage is full or away.
        """
        ...


@dataclass(frozen=True)
class FolderOfDeltas(DeltaFiles):
    """See ``DeltaFiles``: a local folder, or one that all hosts mount.

    Attributes:
        folder: must exist. A missing one is not made: it may be a mount that is away.
        syncs: ``put`` returns once the file is durable. If not, the driver sees to that, which
            is on the same machine: see ``CheckpointFolder.create``.
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
        # The new name is part of the folder, not of the file.
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
