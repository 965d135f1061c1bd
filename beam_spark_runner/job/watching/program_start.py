"""When this program has started, for the time that its first pipeline shows."""

import os
import sys
import time
from pathlib import Path

_IMPORTED_S = time.monotonic()
_TICKS_AT = 19  # of the fields after the name of the process: its start, since boot

_is_first = True


def began_s() -> float:
    """Return the time from which a pipeline that starts now counts, by the monotonic clock.

    The first pipeline of a program counts from the program's start: its user has waited since.
    Later ones, and those of an interpreter that a person types into, count from now.
    """
    global _is_first
    is_first, _is_first = _is_first, False
    if not is_first or hasattr(sys, "ps1"):
        return time.monotonic()
    return _started_s()


def _started_s() -> float:
    """Return the start of this process; where it is not known, when this module was imported."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        since_boot_s = int(fields[_TICKS_AT]) / os.sysconf("SC_CLK_TCK")
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - since_boot_s
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED_S
    return time.monotonic() - age_s


def script_name() -> str:
    """Return the name of the program, for pipelines that have none; empty: it is not known.

    Example:
        wordcount, for ``python examples/wordcount.py`` and ``python -m examples.wordcount``
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None:  # -m
        return str(main.name.removesuffix(".__main__").rpartition(".")[2])
    script = sys.argv[0] if sys.argv else ""
    return "" if script in ("-c", "-") else Path(script).stem
