"""Writes rows of side inputs: many values of one window and key in each row."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from apache_beam.coders import WindowedValueCoder
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core import routing, urns
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.joined_keys import join_key
from beam_spark_runner.engine.rows.writing import (
    FLUSH_BYTES,
    ROW_BYTES,
    Outlet,
    Writer,
)
from beam_spark_runner.harness.beam.window_assignment import MAX_WINDOWS
from beam_spark_runner.portable.wire import window_namer


@dataclass(slots=True)
class _Run:
    """Values of one key and window that will share a row."""

    values: list[bytes]
    size: int


class SideInputWriter(Writer):
    """Writes rows that are looked up: by window, and by key if the side input is a multimap.

    A row holds many values of one key and window: their nested encodings one after the
    other, as the Fn API hands them to an SDK. Its ``order`` says how many they are.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, outlet)
        element_coder = coder.wrapped_value_coder
        self._coded_window = functools.lru_cache(MAX_WINDOWS)(window_namer(coder.window_coder))
        self._run_bytes = max(1, outlet.row_limit_bytes // 2)
        self._runs: dict[bytes, _Run] = {}
        self._is_multimap = edge.access_pattern == urns.SIDE_INPUT_MULTIMAP
        if self._is_multimap:
            self._encode_key = element_coder.key_coder().get_impl().encode_nested
            self._encode_value = element_coder.value_coder().get_impl().encode_nested
        else:
            self._encode_value = element_coder.get_impl().encode_nested
        if edge.is_global and not self._is_multimap:
            self._encode_to = element_coder.get_impl().encode_to_stream
            self._stream, self._count = create_OutputStream(), 0
            self._global_key = join_key(b"", self._coded_window(GlobalWindow()))
            self.accept = self._accept_global  # type: ignore[method-assign]
            self.accept_chunk = self._accept_chunk_global  # type: ignore[method-assign]

    def _accept_global(self, windowed_value: WindowedValue) -> None:
        self._accept_chunk_global([windowed_value.value], [windowed_value])

    def _accept_chunk_global(self, values: list[Any], origins: list[WindowedValue]) -> None:
        encode_to, stream = self._encode_to, self._stream
        value = None
        try:
            for value in values:
                encode_to(value, stream, True)
        except Exception as error:
            raise self._encoding_error("value", value, error) from error
        self._count += len(values)
        if stream.size() >= self._run_bytes:
            self._end_stream()

    def _end_stream(self) -> None:
        coded, count = self._stream.get(), self._count
        self._stream, self._count = create_OutputStream(), 0
        self._add_row(self._global_key, coded, count)

    @override
    def accept(self, windowed_value: WindowedValue) -> None:
        try:
            if self._is_multimap:
                key, value = windowed_value.value
                coded_key = self._encode_key(key)
            else:
                value, coded_key = windowed_value.value, b""
            coded_value = self._encode_value(value)
        except Exception as error:
            raise self._encoding_error("value", windowed_value.value, error) from error
        for window in windowed_value.windows:
            joined = join_key(coded_key, self._coded_window(window))
            run = self._runs.get(joined)
            if run is None:
                run = self._runs[joined] = _Run([], 0)
                self._size += len(joined) + ROW_BYTES
            run.values.append(coded_value)
            run.size += len(coded_value)
            self._size += len(coded_value)
            if run.size >= self._run_bytes:
                del self._runs[joined]
                self._size -= run.size + len(joined) + ROW_BYTES
                self._add_row(joined, b"".join(run.values), len(run.values))
            if self._size > FLUSH_BYTES:  # an element may be in very many windows
                self.flush()

    def _add_row(self, key: bytes, coded_values: bytes, count: int) -> None:
        self._keys.append(key)
        self._values.append(coded_values)
        self._orders.append(count)
        self._size += len(key) + len(coded_values) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self._flush_rows()

    @override
    def flush(self) -> None:
        self._end_runs()
        self._flush_rows()

    def _end_runs(self) -> None:
        """Make rows of all values so far."""
        if self.edge.is_global and not self._is_multimap:
            if self._count:
                self._end_stream()
            return
        runs, self._runs = self._runs, {}
        self._keys.extend(runs)
        self._values.extend(b"".join(run.values) for run in runs.values())
        self._orders.extend(len(run.values) for run in runs.values())

    def _flush_rows(self) -> None:
        keys, self._keys = self._keys, []
        values, self._values = self._values, []
        orders, self._orders = np.array(self._orders, np.int64), []
        self._size = sum(run.size + ROW_BYTES for run in self._runs.values())
        routes = routing.routes_of_keys(keys, len(keys), self.edge.code)
        self._emit_rows(0, routes, orders, keys, values)
