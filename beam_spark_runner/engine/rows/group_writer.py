"""Writes rows of key and value, for destinations that group."""

import functools
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.joined_keys import join_key
from beam_spark_runner.engine.rows.key_writer import KeyWriter
from beam_spark_runner.engine.rows.writing import (
    FLUSH_BYTES,
    ROW_BYTES,
    Outlet,
)
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.harness.beam.window_assignment import MAX_WINDOWS


class GroupWriter(KeyWriter):
    """Writes rows of key and value, for a destination that groups.

    There is a row for each window of an element; or one with all windows, if ``coded_windowing``
    is set.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, coder, outlet)
        element_coder = coder.wrapped_value_coder
        self._encode_value = element_coder.value_coder().get_impl().encode
        self._coded_window = functools.lru_cache(MAX_WINDOWS)(coder.window_coder.get_impl().encode)
        self._sign = {TimestampCombiner.EARLIEST: 1, TimestampCombiner.LATEST: -1}.get(
            edge.timestamp_combiner, 0
        )
        if edge.coded_windowing:
            self._sign = 0  # ``semantics.grouping`` reads the timestamps itself
            windowed = WindowedValueCoder(element_coder.value_coder(), coder.window_coder)
            self._encode_value = windowed.get_impl().encode
            self.accept_chunk = self._accept_windowed_chunk  # type: ignore[method-assign]
        elif edge.is_global and not self._sign:
            self.accept = self._accept_global  # type: ignore[method-assign]
            self.accept_chunk = self._accept_global_chunk  # type: ignore[method-assign]
        self._has_orders = bool(self._sign)

    def _accept_global(self, windowed_value: WindowedValue) -> None:
        key, value = windowed_value.value
        try:
            coded_key = self._encode_key(key)
            coded_value = self._encode_value(value)
        except Exception as error:
            raise self._encoding_error("key or value", (key, value), error) from error
        self._keys.append(coded_key)
        self._values.append(coded_value)
        self._size += len(coded_key) + len(coded_value) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self._flush_full_buffer()

    def _accept_global_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Take elements of which neither timestamp nor window is needed: columns at once."""
        keys, coded_values = self._encoded(values, self._encode_value)
        self._keys += keys
        self._values += coded_values
        self._size += sum(map(len, keys)) + sum(map(len, coded_values)) + ROW_BYTES * len(values)
        if self._size > FLUSH_BYTES:
            self._flush_full_buffer()

    def _accept_windowed_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Make one row per element, with its windows, by which the reader groups."""
        windowed = []
        element: Any = None
        try:
            for element, origin in zip(values, origins, strict=True):
                key, value = element
                windowed.append((key, origin.with_value(value)))
        except (TypeError, ValueError) as error:  # it is no pair
            raise self._encoding_error("key or value", element, error) from error
        self._accept_global_chunk(windowed, origins)

    @override
    def accept(self, windowed_value: WindowedValue) -> None:
        self.accept_chunk([windowed_value.value], [windowed_value])

    @override
    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Make one row per element and window."""
        encode_key, encode_value = self._encode_key, self._encode_value
        is_global, sign = self.edge.is_global, self._sign
        windows: Any = None
        coded_windows: list[bytes] = []
        for element, origin in zip(values, origins, strict=True):
            try:
                key, value = element
                coded_key, coded_value = encode_key(key), encode_value(value)
            except Exception as error:
                raise self._encoding_error("key or value", element, error) from error
            if origin.windows is not windows:
                windows = origin.windows
                coded_windows = [self._coded_window(window) for window in windows]
            count = len(coded_windows)
            size = count * (len(coded_key) + len(coded_value) + 2 * ROW_BYTES)
            if size > FLUSH_BYTES and count > 1:
                self._add_in_pieces(coded_key, coded_value, coded_windows, origin)
                continue
            if is_global:
                keys = [coded_key] * count
            else:
                keys = [join_key(coded_key, coded) for coded in coded_windows]
            self._keys += keys
            self._values += [coded_value] * count
            if sign:
                self._orders += [sign * origin.timestamp_micros] * count
            self._size += size
            if self._size > FLUSH_BYTES:
                self._flush_full_buffer()

    def _add_in_pieces(
        self,
        coded_key: bytes,
        coded_value: bytes,
        coded_windows: list[bytes],
        origin: WindowedValue,
    ) -> None:
        """Add the rows of an element that is in too many windows for one batch."""
        for coded_window in coded_windows:
            self._keys.append(join_key(coded_key, coded_window))
            self._values.append(coded_value)
            if self._sign:
                self._orders.append(self._sign * origin.timestamp_micros)
            self._size += len(coded_key) + len(coded_value) + 2 * ROW_BYTES
            if self._size > FLUSH_BYTES:
                self._flush_full_buffer()
