"""How many files without a name this process has open."""

import gc
import os


def spill_files() -> int:
    """Count those that are open; what was in reference cycles is not."""
    gc.collect()
    found = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{descriptor}").endswith(" (deleted)")
        except FileNotFoundError:  # that of the listing
            continue
    return found
