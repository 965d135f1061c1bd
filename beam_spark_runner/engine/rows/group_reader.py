"""Reads rows as the values of one key after another, for a GroupByKey."""

from collections.abc import Iterator
from typing import cast

from apache_beam.coders import WindowedValueCoder
from typing_extensions import override

from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.coder_errors import StageEpoch
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.joined_keys import split_key
from beam_spark_runner.engine.rows.key_runs import RouteRun, RunReader
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.grouping.epoch_groups import GroupsInEpochs
from beam_spark_runner.harness.grouping.grouping_operator import (
    GroupByKey,
    GroupsByWindow,
    GroupsInPanes,
)
from beam_spark_runner.harness.grouping.sdk_window_fn import MergeWindows
from beam_spark_runner.harness.values.spilled_group import ValueLog, ValueLogs


class GroupReader(RunReader):
    """Passes the values of each key to the stage's operator, from rows sorted by route.

    Rows of one route may hold several keys (a collision of hashes), in any order; they are
    separated before the next route is read.
    """

    def __init__(
        self,
        edge: Edge,
        coder: WindowedValueCoder,
        bundle: BundleInput,
        logs: ValueLogs,
        epoch: StageEpoch | None = None,
        merge_windows: MergeWindows | None = None,
    ) -> None:
        super().__init__(edge, coder, bundle, logs, None if epoch is None else epoch.remote_store)
        self._runs: GroupsByWindow | None = None
        self._operator: GroupByKey
        if epoch is not None:
            self._operator = GroupsInEpochs(
                edge,
                coder,
                self._bundle,
                logs,
                store=epoch.store,
                before=epoch.before,
                now=epoch.now,
                late=epoch.late,
                merge=epoch.merge,
                interruption=epoch.interruption,
                merge_windows=merge_windows,
            )
        elif edge.coded_windowing:
            self._operator = GroupsInPanes(edge, coder, self._bundle, logs, merge_windows)
        else:
            self._operator = by_window = GroupsByWindow(edge, coder, self._bundle, logs, split_key)
            self._runs = by_window if by_window.takes_runs else None

    def fire(self, owner: str, key: bytes) -> None:
        """See ``GroupsInEpochs.fire``."""
        assert isinstance(self._operator, GroupsInEpochs)
        self._operator.fire(owner, key)

    def finish_epoch(self) -> None:
        """See ``GroupsInEpochs.finish``."""
        assert isinstance(self._operator, GroupsInEpochs)
        self._operator.finish()

    @override
    def _read(self, cursor: RowCursor) -> None:
        super()._read(cursor)
        self._operator.push()

    @override
    def _read_complete(self, block: schema.RowBatch, first: int, cuts: list[int]) -> int:
        """Process the groups that end in the block, at ``cuts``; return where the next begins."""
        if self._runs is None:
            return super()._read_complete(block, first, cuts)
        keys, values, orders = block.keys, block.values, block.orders
        return self._runs.group_runs(
            cast("list[bytes]", keys),
            values,
            first,
            cuts,
            lambda start, end: self._emit(keys[start:end], values[start:end], orders[start:end]),
        )

    @override
    def _emit(
        self, keys: list[bytes | None], values: list[bytes], orders: schema.Int64Array
    ) -> None:
        keys_there = cast("list[bytes]", keys)  # rows of groups have keys
        key = keys_there[0]
        if len(keys) == 1 or keys.count(key) == len(keys):
            self._operator.group(key, values, int(orders[0]))
            return
        groups: dict[bytes, tuple[int, list[bytes]]] = {}
        for key, value, order in zip(keys_there, values, orders.tolist(), strict=True):
            groups.setdefault(key, (order, []))[1].append(value)
        for key, (order, values_of_key) in groups.items():
            self._operator.group(key, values_of_key, order)

    @override
    def _stream(self, cursor: RowCursor, route: int, run: RouteRun) -> None:
        """Stream the first key's values while they are read; log those of other keys for later."""
        first = cast("bytes", run.keys[0])
        others: dict[bytes, tuple[int, ValueLog]] = {}

        def values_of_first(rows: RouteRun | None) -> Iterator[bytes]:
            while rows is not None:
                if rows.keys.count(first) == len(rows.keys):
                    yield from rows.values
                else:
                    keys = cast("list[bytes]", rows.keys)
                    orders = rows.orders.tolist()
                    for key, value, order in zip(keys, rows.values, orders, strict=True):
                        if key == first:
                            yield value
                        else:
                            if key not in others:
                                others[key] = order, self._logs.new()
                            others[key][1].append(value)
                rows = self._next_rows(cursor, route)

        self._operator.stream(first, int(run.orders[0]), self._logs.new(), values_of_first(run))
        for key, (order, log) in others.items():
            self._operator.stream(key, order, log)
