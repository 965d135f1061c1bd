"""Merges sorted runs of rows, with a few blocks of each in memory."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from beam_spark_runner.engine.rows import schema

_EMITTED_BYTES = 1 << 20


def places_in_order(rows: pa.RecordBatch | pa.Table, *, is_ordered: bool) -> schema.Int64Array:
    """Return the places of rows, sorted by route. Equal rows stay in their order.

    Args:
        rows: the rows.
        is_ordered: whether rows with equal routes are sorted by ``order``.
    """
    routes = rows.column("route").to_numpy()
    if is_ordered:
        return np.lexsort((rows.column("order").to_numpy(), routes))
    return np.argsort(routes, kind="stable")


def in_blocks(
    rows: pa.RecordBatch, places: schema.Int64Array, block_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows at some places, in blocks of about a size.

    Each is a copy: the other rows need not stay in memory for it.
    """
    count = max(1, block_bytes * len(rows) // max(rows.nbytes, 1))
    for start in range(0, len(places), count):
        yield rows.take(pa.array(places[start : start + count]))


def merge_runs(
    runs: Sequence[Iterable[pa.RecordBatch]], *, is_ordered: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all runs, sorted; equal rows come in the order of the runs.

    The last row of the blocks that were read of a run is a bound: later blocks have no rows before
    it. So all rows up to the least bound are merged at once.

    Args:
        runs: sorted rows.
        is_ordered: see ``places_in_order``.
    """
    cursors = [_RunCursor(run, is_ordered=is_ordered) for run in runs]
    while cursors := [cursor for cursor in cursors if cursor.load_rows()]:
        # If several have the least bound, the first one: later blocks of it may have equal rows,
        # which come before those of later runs.
        first = min(range(len(cursors)), key=lambda index: cursors[index].bound)
        bound = cursors[first].bound
        parts = [
            cursor.pop_until(bound, equals_too=index <= first)
            for index, cursor in enumerate(cursors)
        ]
        rows = pa.concat_batches(parts)
        yield from in_blocks(rows, places_in_order(rows, is_ordered=is_ordered), _EMITTED_BYTES)


class _RunCursor:
    """The rows of a run that have been read, and are not merged yet."""

    def __init__(self, run: Iterable[pa.RecordBatch], *, is_ordered: bool) -> None:
        self._blocks = iter(run)
        self._is_ordered = is_ordered
        self._rows = schema.NO_ROWS
        self._few = 0

    def load_rows(self) -> bool:
        """Read a block if few rows are left; return whether there are any.

        Were it read only after the last row, the bounds of other runs would be near: few rows would
        be merged at once.
        """
        if len(self._rows) <= self._few:
            block = next(self._blocks, None)
            if block is not None:
                self._few = len(block) // 2
                self._rows = pa.concat_batches([self._rows, block])
        if not len(self._rows):
            return False
        self._routes = self._rows.column("route").to_numpy()
        self._orders = self._rows.column("order").to_numpy()
        return True

    @property
    def bound(self) -> tuple[int, int]:
        """The route of the last row, and what else it is sorted by."""
        return int(self._routes[-1]), int(self._orders[-1]) if self._is_ordered else 0

    def pop_until(self, bound: tuple[int, int], *, equals_too: bool) -> pa.RecordBatch:
        """Remove the rows before a bound, and return them.

        Args:
            bound: see ``bound``.
            equals_too: whether rows that equal the bound are removed, too.
        """
        route, order = bound
        start = int(np.searchsorted(self._routes, route, "left"))
        end = int(np.searchsorted(self._routes, route, "right"))
        if self._is_ordered:
            orders = self._orders[start:end]
            end = start + int(np.searchsorted(orders, order, "right" if equals_too else "left"))
        elif not equals_too:
            end = start
        rows, self._rows = self._rows.slice(0, end), self._rows.slice(end)
        return rows
