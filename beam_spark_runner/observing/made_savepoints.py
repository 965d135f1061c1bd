"""The savepoints of a stream, those of its earlier runs among them."""

from typing import NamedTuple


class MadeSavepoint(NamedTuple):
    """A savepoint.

    Attributes:
        path: Its folder, or the URL of that.
        epoch: The number of its epoch.
        size_bytes: The size of the files that it has copied. None: not known, of an earlier run.
        at_s: When it was complete, Unix time; of an earlier run, when it was begun.
    """

    path: str
    epoch: int
    size_bytes: int | None
    at_s: float
