"""Callbacks of bundle finalization."""

from typing import Protocol


class Callbacks(Protocol):
    """What user code wants to be called back for once a bundle's output is committed.

    Threads: any. Either method is called once.
    """

    def run(self) -> None:
        """Call back. What user code raises is logged."""
        ...

    def drop(self) -> None:
        """The output is void, or nobody will ever know: forget them."""
        ...
