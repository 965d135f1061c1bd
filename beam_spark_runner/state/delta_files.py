"""What shards need of the storage of deltas."""

from pathlib import Path
from typing import BinaryIO, Protocol


class DeltaFiles(Protocol):
    """The storage of deltas, shared by the driver and all executors: a part of ``Folder``."""

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
