"""Hands the records of a partition to a function, and its results back.

Elements are pushed into a bundle, and the function of ``map_partition`` pulls them. So it needs
a stack of its own: that of a greenlet, or where there are none, of a thread.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from beam_spark_runner.transforms.full_window.records import Records
from beam_spark_runner.transforms.full_window.threaded import ThreadedHandover


class Handover(Protocol):
    """Runs a function over records while they arrive. The thread of the bundle calls it."""

    def feed(self, records: list[Any]) -> Iterator[list[Any]]:
        """Hand records over; wait while there are too many that the function has not seen.

        Yields:
            Results that have been made meanwhile, at least one at a time.

        Raises:
            BaseException: what the function has raised.
        """
        ...

    def end(self) -> Iterator[list[Any]]:
        """Say that these were all records, and yield the other results. See ``feed``."""
        ...

    def abandon(self) -> bool:
        """End the function, whose results nobody wants any more. False: it has not ended."""
        ...


def hand_over(run: Callable[[Records], Iterable[Any]]) -> Handover:
    """Return what runs a function.

    Args:
        run: makes results from the records, which it may leave unread.
    """
    try:  # an SDK harness may have nothing but Beam
        from beam_spark_runner.transforms.full_window.switched import SwitchedHandover
    except ImportError:
        return ThreadedHandover(run)
    return SwitchedHandover(run)
