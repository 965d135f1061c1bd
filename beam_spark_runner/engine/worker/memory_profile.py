"""A memory profile of this process for some seconds, by memray, if that is installed."""

import resource
import tempfile
import time
from pathlib import Path
from typing import Any

_MAX_PLACES = 20
_MAX_FRAMES = 4
PROFILED_S = 5.0


def memory_profile(seconds: float = PROFILED_S) -> str:
    """Return where this process has allocated the most memory, as text for people.

    Only what is allocated while it looks is known, so that it slows the process meanwhile only.

    Args:
        seconds: How long it looks.
    """
    try:
        import memray
    except ImportError as error:
        return (
            f"{_size()}\nThere is no profile: memray is not installed where this worker runs "
            f"(pip install memray): {error}"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "profile")
        try:
            with memray.Tracker(path):
                time.sleep(seconds)
        except RuntimeError as error:  # another one looks already
            return f"{_size()}\nThere is no profile: {error}"
        with memray.FileReader(path) as reader:
            records = list(reader.get_high_watermark_allocation_records(merge_threads=True))
    records.sort(key=lambda record: -record.size)
    total = sum(record.size for record in records)
    places = "\n".join(map(_text_of, records[:_MAX_PLACES]))
    return (
        f"{_size()}\nAllocated within {seconds:g} s, and alive at the peak: {_mb(total)}, by "
        f"{len(records):,} places.\n{places}"
    )


def _text_of(record: Any) -> str:
    frames = record.stack_trace(_MAX_FRAMES)
    where = " < ".join(f"{function} ({file}:{line})" for function, file, line in frames)
    return f"{_mb(record.size):>10}  {record.n_allocations:>8,} times  {where or 'no Python code'}"


def _size() -> str:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (
        f"The process has {_mb(pages * resource.getpagesize())} of memory; its peak was "
        f"{_mb(peak_kb * 1024)}."
    )


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
