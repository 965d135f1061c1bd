"""Sizes of memory, as users write them."""

import re

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+) *([kmg]?)i?b?", re.IGNORECASE)


def parse_bytes(value: object) -> int:
    """Parse a size, such as ``128m``; the units are those of Spark.

    Example:
        "64 MB" -> 67108864;  4096 -> 4096

    Raises:
        ValueError: The text is no size, or zero.
    """
    match = _SIZE.fullmatch(str(value).strip())
    size = int(match[1]) * _UNITS[match[2].lower()] if match else 0
    if not size:
        raise ValueError(f"must be a size in bytes such as 64m or 1g, not {value!r}")
    return size
