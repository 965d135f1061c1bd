"""Stores bytes in an anonymous temporary file."""

import os
import tempfile
from pathlib import Path
from typing import Any


class SpillFile:
    """Appends pieces and reads them back. The file vanishes with the process, however it ends.

    Threads: one at a time; while one appends, others may read what was appended before.

    Args:
        folder: where the file is. None: in the folder for temporary files.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._file: Any = None
        self.end = 0  # where the next piece will begin

    def append(self, piece: bytes | memoryview) -> int:
        """Write a piece; return where it begins."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(  # noqa: SIM115
                prefix="beam-spill-", buffering=0, dir=self._folder
            )
        start = end = self.end
        view = memoryview(piece)
        while view:
            count = os.pwrite(self._file.fileno(), view, end)
            end += count
            view = view[count:]
        self.end = end  # not reached after an error: the next piece overwrites a partial one
        return start

    def read(self, start: int, length: int) -> bytes:
        """Return ``length`` bytes that begin at ``start``."""
        pieces = []
        while length:
            piece = os.pread(self._file.fileno(), length, start)
            if not piece:
                raise EOFError(f"{length} bytes are missing at {start}")
            pieces.append(piece)
            start, length = start + len(piece), length - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Free the disk space; the next ``append`` begins a new file."""
        if self._file is not None:
            self._file.close()
            self._file, self.end = None, 0
