"""Reads rows as the elements of a step that has state, key by key."""

import struct
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue, create
from typing_extensions import override

from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.key_runs import RouteRun, RunReader
from beam_spark_runner.harness.bundle import BundleInput
from beam_spark_runner.harness.chunking import per_chunk
from beam_spark_runner.harness.codec.windowed import windowed_decoder
from beam_spark_runner.harness.values.spilled_group import ValueLog, ValueLogs
from beam_spark_runner.state.store import StoredState

_BARE = create(None, MIN_TIMESTAMP.micros, (GlobalWindow(),), PANE_INFO_UNKNOWN)
_ORDER = struct.Struct("<q")


class KeyedReader(RunReader):
    """Pushes the elements of one key after another, and advances each key after its last one.

    Keys whose hashes are equal are separated first. The elements of a key that exceed memory are
    pushed while its rows are read.
    """

    def __init__(
        self,
        edge: Edge,
        coder: WindowedValueCoder,
        bundle: BundleInput,
        logs: ValueLogs,
        store: StoredState | None = None,
    ) -> None:
        super().__init__(edge, coder, bundle, logs, store)
        element_coder = coder.wrapped_value_coder  # KV<K, V>
        value_coder = element_coder.value_coder()
        key_coder = element_coder.key_coder().get_impl()
        self._decode_key = key_coder.decode_nested if edge.key_groups else key_coder.decode
        self._decode_bare = value_coder.get_impl().decode
        self._decode_windowed = windowed_decoder(value_coder, coder.window_coder)

    def fire(self, owner: str, key: bytes) -> None:
        """Advance a key that has a timer due.

        Args:
            owner: the transform that set the timer; any of the stage's.
            key: the key, in the nested encoding.
        """
        self._bundle.begin_key(key)
        self._bundle.advance_key()

    @override
    def _emit(
        self, keys: list[bytes | None], values: list[bytes], orders: schema.Int64Array
    ) -> None:
        key = keys[0]
        if len(keys) == 1 or keys.count(key) == len(keys):
            self._push(self._key(key), values, orders.tolist())
            self._bundle.advance_key()
            return
        by_key: dict[bytes | None, tuple[list[bytes], list[int]]] = {}
        for key, value, order in zip(keys, values, orders.tolist(), strict=True):
            some_values, some_orders = by_key.setdefault(key, ([], []))
            some_values.append(value)
            some_orders.append(order)
        for key, (some_values, some_orders) in by_key.items():
            self._push(self._key(key), some_values, some_orders)
            self._bundle.advance_key()

    @override
    def _stream(self, cursor: RowCursor, route: int, run: RouteRun) -> None:
        first = run.keys[0]
        key = self._key(first)
        others: dict[bytes | None, ValueLog] = {}
        rows: RouteRun | None = run
        while rows is not None:
            orders = rows.orders.tolist()
            if rows.keys.count(first) == len(rows.keys):
                self._push(key, rows.values, orders)
            else:
                for other_key, value, order in zip(rows.keys, rows.values, orders, strict=True):
                    if other_key == first:
                        self._push(key, [value], [order])
                    else:
                        if other_key not in others:
                            others[other_key] = self._logs.new()
                        others[other_key].append(_ORDER.pack(order) + value)
            rows = self._next_rows(cursor, route)
        self._bundle.advance_key()
        for other_key, log in others.items():
            key = self._key(other_key)
            for logged in log:
                (order,) = _ORDER.unpack_from(logged)
                self._push(key, [logged[_ORDER.size :]], [order])
            self._bundle.advance_key()
            log.close()

    def _key(self, coded: bytes | None) -> Any:
        assert coded is not None
        return self._decode_key(coded)

    def _push(self, key: Any, values: list[bytes], orders: list[int]) -> None:
        step = per_chunk(values)
        for start in range(0, len(values), step):
            chunk, chunk_orders = values[start : start + step], orders[start : start + step]
            if chunk_orders.count(schema.BARE) == len(chunk):
                decode = self._decode_bare
                origins = [_BARE] * len(chunk)
                elements = [(key, decode(value)) for value in chunk]
            else:
                windowed = self._windowed
                origins = [
                    windowed(value, order) for value, order in zip(chunk, chunk_orders, strict=True)
                ]
                elements = [(key, origin.value) for origin in origins]
            self._bundle.push(elements, origins)

    def _windowed(self, value: bytes, order: int) -> WindowedValue:
        if order == schema.BARE:
            return _BARE.with_value(self._decode_bare(value))
        return self._decode_windowed(value)
