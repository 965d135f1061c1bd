"""Runs of rows that have one route, from rows sorted by route."""

import abc
from dataclasses import dataclass

import numpy as np
from apache_beam.coders import WindowedValueCoder
from typing_extensions import override

from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.coder_errors import Reader
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.values.spilled_group import ROW_OVERHEAD_BYTES, ValueLogs
from beam_spark_runner.state.store import StoredState


@dataclass(slots=True)
class RouteRun:
    """Rows of one route, as far as they were read."""

    keys: list[bytes | None]
    values: list[bytes]
    orders: schema.Int64Array

    def size(self) -> int:
        """Return about how many bytes the run takes in memory."""
        return sum(map(len, self.values)) + ROW_OVERHEAD_BYTES * len(self.values)


class RunReader(Reader):
    """Passes on the rows of each route together.

    They may hold several keys (a collision of hashes), in any order.

    Args:
        logs: the value logs of the task; a run that exceeds their limit is streamed.
        store: what the keys have stored, where reading it takes a round trip. None: nowhere.
    """

    def __init__(
        self,
        edge: Edge,
        coder: WindowedValueCoder,
        bundle: BundleInput,
        logs: ValueLogs,
        store: StoredState | None,
    ) -> None:
        super().__init__(edge, coder, bundle)
        self._logs, self._store = logs, store

    @override
    def _read(self, cursor: RowCursor) -> None:
        block, start, end = cursor.block, cursor.position, cursor.run_end()
        assert block is not None
        routes = block.routes[start:end]
        cuts = (np.flatnonzero(routes[1:] != routes[:-1]) + (start + 1)).tolist()
        if self._store is not None:
            self._store.ask(dict.fromkeys(key for key in block.keys[start:end] if key is not None))
        first = self._read_complete(block, start, cuts)
        keys, values, orders = block.keys, block.values, block.orders
        cursor.position = end
        if end < len(block):
            self._emit(keys[first:end], values[first:end], orders[first:end])
        else:
            rest = RouteRun(keys[first:end], values[first:end], orders[first:end])
            self._finish_run(cursor, int(routes[-1]), rest)

    def _read_complete(self, block: schema.RowBatch, first: int, cuts: list[int]) -> int:
        """Take the runs that end within the block, at ``cuts``; return where the next begins."""
        keys, values, orders = block.keys, block.values, block.orders
        for last in cuts:
            self._emit(keys[first:last], values[first:last], orders[first:last])
            first = last
        return first

    def _finish_run(self, cursor: RowCursor, route: int, run: RouteRun) -> None:
        """Process the run at the end of a block, which may continue in the next one."""
        size = run.size()
        while size <= self._logs.group_memory_bytes:
            more = self._next_rows(cursor, route)
            if more is None:
                self._emit(run.keys, run.values, run.orders)
                return
            size += more.size()
            run = RouteRun(
                run.keys + more.keys,
                run.values + more.values,
                np.concatenate([run.orders, more.orders]),
            )
        self._stream(cursor, route, run)

    def _next_rows(self, cursor: RowCursor, route: int) -> RouteRun | None:
        """Take further rows of a route; None: there are no more."""
        if not cursor.load() or cursor.dest != self._edge.dest:
            return None
        block, start, end = cursor.block, cursor.position, cursor.run_end()
        assert block is not None
        if int(block.routes[start]) != route:
            return None
        # Routes are sorted within a destination, so equal ones are found by bisection.
        end = start + int(np.searchsorted(block.routes[start:end], route, side="right"))
        cursor.position = end
        return RouteRun(block.keys[start:end], block.values[start:end], block.orders[start:end])

    @abc.abstractmethod
    def _emit(
        self, keys: list[bytes | None], values: list[bytes], orders: schema.Int64Array
    ) -> None:
        """Process a whole run."""

    @abc.abstractmethod
    def _stream(self, cursor: RowCursor, route: int, run: RouteRun) -> None:
        """Process a run that exceeds memory: its rows so far, and those of ``_next_rows``."""
