"""Base class of writers of rows with keys."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from apache_beam.coders import WindowedValueCoder
from typing_extensions import override

from beam_spark_runner.core import routing
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.held_values import HeldValues
from beam_spark_runner.engine.rows.joined_keys import put_before
from beam_spark_runner.engine.rows.packed_rows import (
    are_short,
    have_several_values,
    packed,
    packed_by_key,
)
from beam_spark_runner.engine.rows.writing import (
    FLUSH_BYTES,
    LONG_KEY_BYTES,
    EncodingError,
    Outlet,
    Writer,
)
from beam_spark_runner.harness.failures import is_charged
from beam_spark_runner.portable.coders import deterministic_key_coder


class KeyWriter(Writer):
    """Buffers rows by key: a route has its hash; in epochs, it leads to the key's partition."""

    _has_orders = True

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, outlet)
        key_coder = coder.wrapped_value_coder.key_coder()
        coder_impl = deterministic_key_coder(key_coder).get_impl()
        self._encode_key = coder_impl.encode_nested if edge.key_groups else coder_impl.encode
        self._partitions = outlet.partitions
        self._held = HeldValues(outlet.room)

    @override
    def flush(self) -> None:
        self._flush_buffer(are_last=True)
        self._flush_held()

    def _flush_full_buffer(self) -> None:
        """Emit what is buffered, or hold it until there is more of the same keys."""
        self._flush_buffer(are_last=False)
        if self._held.is_full:
            self._flush_held()

    def _flush_buffer(self, *, are_last: bool) -> None:
        keys, values, self._keys, self._values, self._size = self._keys, self._values, [], [], 0
        if not values:
            return
        orders = np.array(self._orders, np.int64) if self._has_orders else None
        self._orders = []
        if self._may_pack(orders) and are_short(keys, values):
            if have_several_values(keys):
                self._flush_packed(packed(keys, values))
                return
            if (self._held or not are_last) and self._held.take(keys, values):
                return
        routes = self._routes(keys)
        if max(map(len, keys)) <= LONG_KEY_BYTES:
            self._emit_rows(0, routes, orders, keys, values)
            return
        for long, flag in ((False, 0), (True, schema.LONG_KEY)):
            rows = [row for row, key in enumerate(keys) if (len(key) > LONG_KEY_BYTES) is long]
            if not rows:
                continue
            some_keys = [keys[row] for row in rows]
            some_values = [values[row] for row in rows]
            if long:
                some_values = [
                    put_before(key, value)
                    for key, value in zip(some_keys, some_values, strict=True)
                ]
                some_keys = [routing.digest_of(key) for key in some_keys]
            index = np.array(rows, np.int64)
            some_orders = None if orders is None else orders[index]
            self._emit_rows(flag, routes[index], some_orders, some_keys, some_values)

    def _encoded(
        self, values: list[Any], encode_value: Callable[[Any], bytes]
    ) -> tuple[list[bytes], list[bytes]]:
        """Encode the keys and the values of KVs.

        Raises:
            EncodingError: One of them cannot be encoded.
        """
        encode_key = self._encode_key
        try:
            keys = [encode_key(key) for key, _ in values]
            return keys, [encode_value(value) for _, value in values]
        except Exception as error:
            if is_charged(error):  # another thread has interrupted the task, and does so once
                raise
            raise self._error_of(values, encode_value, error) from error

    def _error_of(
        self, values: list[Any], encode_value: Callable[[Any], bytes], error: Exception
    ) -> EncodingError:
        """Return the error of the first element that cannot be encoded."""
        for element in values:
            try:
                key, value = element
                self._encode_key(key)
                encode_value(value)
            except Exception as its_error:
                return self._encoding_error("key or value", element, its_error)
        return self._encoding_error("key or value", None, error)

    def _may_pack(self, orders: routing.Int64Array | None) -> bool:
        """Whether the order of all rows is the same. In epochs, rows are few."""
        return not self.edge.key_groups and (orders is None or bool((orders == schema.BARE).all()))

    def _flush_held(self) -> None:
        for by_key, longest in self._held.drain(FLUSH_BYTES):
            self._flush_packed(packed_by_key(by_key, longest))

    def _flush_packed(self, rows: Iterable[tuple[int, list[bytes], list[bytes]]]) -> None:
        for flag, keys_of_rows, values_of_rows in rows:
            count = len(keys_of_rows)
            orders = np.full(count, schema.BARE) if self._has_orders else None
            routes = self._routes(keys_of_rows)
            self._emit_rows(flag, routes, orders, keys_of_rows, values_of_rows)

    def _routes(self, keys: list[bytes]) -> routing.Int64Array:
        count, code, groups = len(keys), self.edge.code, self.edge.key_groups
        if groups:
            return routing.routes_in_key_groups(keys, count, code, groups, self._partitions)
        return routing.routes_of_keys(keys, count, code)
