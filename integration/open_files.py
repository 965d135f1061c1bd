"""Files that processes have open, and that no folder has any more."""

import os
from pathlib import Path


def nameless_files(folder: Path) -> dict[int, int]:
    """Return process id -> bytes in files of a folder that it has open, and that have no name."""
    found: dict[int, int] = {}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            status = os.stat(link)
            if status.st_nlink == 0 and os.readlink(link).startswith(f"{folder}/"):
                pid = int(link.parts[2])
                found[pid] = found.get(pid, 0) + status.st_size
        except OSError:  # it has been closed meanwhile, or its process has ended
            continue
    return found
