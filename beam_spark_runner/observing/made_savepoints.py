"""The savepoints that a stream has made of itself."""

from typing import NamedTuple


class MadeSavepoint(NamedTuple):
    """A savepoint.

    Attributes:
        path: Its folder, or the URL of that.
        epoch: The number of its epoch.
        size_bytes: The size of the files that it has copied.
        at_s: When it was complete, Unix time.
    """

    path: str
    epoch: int
    size_bytes: int
    at_s: float
