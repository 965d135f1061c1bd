"""Writes rows for a step that has state: one per element, by key."""

from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue
from typing_extensions import override

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.key_writer import KeyWriter
from beam_spark_runner.engine.rows.writing import FLUSH_BYTES, ROW_BYTES, Outlet
from beam_spark_runner.harness.chunking import have_one_origin


class KeyedWriter(KeyWriter):
    """Writes key, value and event time of each element. All windows of a key have one route.

    An element in the global window without timestamp and pane is written as its value alone, with
    ``BARE`` as its ``order``.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, coder, outlet)
        value_coder = coder.wrapped_value_coder.value_coder()
        self._encode_bare = value_coder.get_impl().encode
        self._encode_windowed = (
            WindowedValueCoder(value_coder, coder.window_coder).get_impl().encode
        )
        self._is_global = edge.is_global

    @override
    def accept(self, windowed_value: WindowedValue) -> None:
        self.accept_chunk([windowed_value.value], [windowed_value])

    @override
    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        first = len(self._values)
        if self._is_bare(origins[0]) and have_one_origin(origins):
            self._add_bare(values)
        else:
            self._add(values, origins)
        self._size += (
            sum(map(len, self._keys[first:])) + sum(map(len, self._values[first:]))
        ) + 2 * ROW_BYTES * len(values)
        if self._size > FLUSH_BYTES:
            self._flush_full_buffer()

    def _is_bare(self, origin: WindowedValue) -> bool:
        return (
            self._is_global
            and origin.timestamp_micros == MIN_US
            and origin.pane_info is PANE_INFO_UNKNOWN
        )

    def _add_bare(self, values: list[Any]) -> None:
        keys, coded_values = self._encoded(values, self._encode_bare)
        self._keys += keys
        self._values += coded_values
        self._orders += [schema.BARE] * len(values)

    def _add(self, values: list[Any], origins: list[WindowedValue]) -> None:
        encode_key, encode_bare, encode_windowed = (
            self._encode_key,
            self._encode_bare,
            self._encode_windowed,
        )
        element: Any = None
        try:
            for element, origin in zip(values, origins, strict=True):
                key, value = element
                coded_key = encode_key(key)
                order = origin.timestamp_micros
                if self._is_bare(origin):
                    order, coded = schema.BARE, encode_bare(value)
                else:
                    coded = encode_windowed(origin.with_value(value))
                self._keys.append(coded_key)
                self._values.append(coded)
                self._orders.append(order)
        except Exception as error:
            raise self._encoding_error("key or value", element, error) from error
