"""Callbacks of bundle finalization."""

from typing import Protocol


class Callbacks(Protocol):
    """The callbacks of user code to run once a bundle's output is committed.

    Threads: any. One of the methods is called, once.
    """

    def run(self) -> None:
        """Run the callbacks. Exceptions of user code are logged."""
        ...

    def drop(self) -> None:
        """Drop the callbacks: the output is not committed, or that will never be known."""
        ...
