"""Feeds the rows of a task in slices, so that the task can stop between two of them."""

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from beam_spark_runner.engine.rows import schema


class Slices:
    """The rows of one task, in slices of 1, 2, 4, … groups of rows with equal routes.

    A slice has no more groups than fit the time that is left, if they take as long as those of the
    previous slice. Rows of one group, and the pieces of one value, have equal routes and follow
    each other: none is torn apart. Marks come before all slices, and reports after them, also if
    the task stops early.

    Threads: one iterates; any may call the other methods.

    Args:
        rows: sorted by route, if they are read in groups.
        remaining_s: returns the time that is left, in seconds. When it is over, no further slice is
            fed; the first one always is.
    """

    def __init__(self, rows: pa.Table, remaining_s: Callable[[], float]) -> None:
        dests = rows.column("dest").to_numpy() & schema.DEST_MASK
        self._marks = rows.filter(pa.array(dests == schema.CONTROL))
        self._reports = rows.filter(pa.array(dests == schema.REPORT))
        is_control = (dests == schema.CONTROL) | (dests == schema.REPORT)
        self._rows = rows.filter(pa.array(~is_control)).combine_chunks()
        routes = self._rows.column("route").to_numpy()
        changes = np.flatnonzero(routes[1:] != routes[:-1]) + 1
        self._ends: list[int] = [*changes.tolist(), len(routes)] if len(routes) else []
        self._remaining_s = remaining_s
        self._lock = threading.Lock()
        self._groups = 0  # that have been fed
        self._is_stopped = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._marks.to_batches()
        count = 1
        while (piece := self._next_slice(count)) is not None:
            began_s = self._remaining_s()
            yield from piece.to_batches()
            remaining_s = self._remaining_s()
            count = _next_count(count, began_s - remaining_s, remaining_s)
        yield from self._reports.to_batches()

    def _next_slice(self, count: int) -> pa.Table | None:
        with self._lock:
            if self._groups and self._remaining_s() <= 0:
                self._is_stopped = True
            if self._is_stopped or self._groups == len(self._ends):
                return None
            start = self._fed_rows
            self._groups = min(self._groups + count, len(self._ends))
            return self._rows.slice(start, self._fed_rows - start)

    @property
    def _fed_rows(self) -> int:
        return self._ends[self._groups - 1] if self._groups else 0

    def stop(self) -> None:
        """Feed no further slice."""
        with self._lock:
            self._is_stopped = True

    def count_unread(self) -> int:
        """Return how many rows are not fed."""
        with self._lock:
            return len(self._rows) - self._fed_rows

    def stop_and_rest(self) -> list[pa.RecordBatch]:
        """Stop, and return the rows that are not fed."""
        self.stop()
        batches: list[pa.RecordBatch] = self._rows.slice(self._fed_rows).to_batches()
        return batches


def _next_count(count: int, took_s: float, remaining_s: float) -> int:
    """Return how many groups the next slice has, after one of ``count`` groups."""
    doubled = 2 * count
    if took_s * doubled <= remaining_s * count:
        return doubled
    return max(1, int(remaining_s * count / took_s))
