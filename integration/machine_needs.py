"""What targets need of this machine: asked for before anything is built or downloaded.

It runs in the Python that makes the virtual environment, without any packages.
"""

import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


def missing_room(memory_mb: int, disk_mb: int, folder: str) -> Iterator[str]:
    """Yield whether memory, or the disk of a folder, have too little room for a target."""
    about = dict(re.findall(r"^(\w+): +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
    if (free_mb := int(about["MemAvailable"]) >> 10) < memory_mb:
        yield f"memory: {memory_mb} MB; {free_mb} MB are available"
    if (free_mb := shutil.disk_usage(folder).free >> 20) < disk_mb:
        yield f"disk: {disk_mb} MB in {folder}; {free_mb} MB are free"


def print_missing(target: str, problems: Iterable[str]) -> int:
    """Print what a target of the Makefile needs; return the exit status."""
    found = list(problems)
    for problem in found:
        print(f"make {target} needs {problem}", file=sys.stderr)
    return 2 if found else 0
