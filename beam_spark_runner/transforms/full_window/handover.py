"""Passes the records of a partition to the function of ``map_partition``, and its results back.

A bundle gets its elements by calls, but the function pulls them from an iterator. So it needs
its own stack: that of a greenlet or, without the package ``greenlet``, of a thread.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from beam_spark_runner.transforms.full_window.partition_records import PartitionRecords
from beam_spark_runner.transforms.full_window.threaded import ThreadedHandover


class Handover(Protocol):
    """Runs a function over records while they arrive. Threads: the one of the bundle."""

    def feed(self, records: list[Any]) -> Iterator[list[Any]]:
        """Pass records to the function; wait while too many are unread.

        Yields:
            Non-empty lists of results so far.

        Raises:
            BaseException: The error that the function has raised.
        """
        ...

    def end(self) -> Iterator[list[Any]]:
        """End the input of the function, and yield the remaining results; see ``feed``."""
        ...

    def abandon(self) -> bool:
        """End the function, and drop its results; return whether it has ended."""
        ...


def hand_over(run: Callable[[PartitionRecords], Iterable[Any]]) -> Handover:
    """Return a ``Handover`` for a function.

    Args:
        run: The function of the records, which returns the results. It may leave records unread.
    """
    try:  # an SDK harness may have neither this package nor greenlet
        from beam_spark_runner.transforms.full_window.switched import SwitchedHandover
    except ImportError:
        return ThreadedHandover(run)
    return SwitchedHandover(run)
