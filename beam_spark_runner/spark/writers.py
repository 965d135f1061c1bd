"""From elements to rows: one writer for each destination that a stage's output goes to.

``accept`` is called once per element straight from Beam's compiled code, so
that it does as little as it can; columns are built for thousands at a time.
"""

import abc
import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.coders import WindowedValueCoder
from apache_beam.coders.coder_impl import create_OutputStream
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue

from beam_spark_runner.core import routing, urns
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.coders import deterministic_key_coder
from beam_spark_runner.spark import rows
from beam_spark_runner.spark.keys import join_key, put_before
from beam_spark_runner.spark.program import Edge

FLUSH_BYTES = 4 << 20
ROW_BYTES = 40  # what a row costs beside its value, as far as flushing goes
LONG_KEY_BYTES = 1 << 16

_MIN_US = MIN_TIMESTAMP.micros


class EncodingError(Exception):
    """An element does not go through its coder, or is too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlet:
    """Where a task's rows go, and what they have to keep to."""

    emit: Callable[[pa.RecordBatch], None]  # takes finished batches; may block
    row_limit_bytes: int  # longer values are cut
    max_element_bytes: int  # longer elements are refused
    partitions: int  # of the next exchange; at least 1
    first: int  # where to begin if rows are spread: the number of this task


class Writer(abc.ABC):
    """Buffers rows of one destination. Threads: the bundle's.

    Raises (from ``accept``):
        EncodingError: the element cannot be encoded or is too long.
    """

    def __init__(self, edge: Edge, outlet: Outlet) -> None:
        self.edge = edge
        self._emit = outlet.emit
        self._row_limit_bytes = outlet.row_limit_bytes
        self._max_element_bytes = outlet.max_element_bytes
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._orders: list[int] = []
        self._size = 0

    @abc.abstractmethod
    def accept(self, windowed_value: WindowedValue) -> None:
        """Take one element."""

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Take some values; each has the timestamp, windows and pane of its origin."""
        accept = self.accept
        for value, origin in zip(values, origins, strict=True):
            accept(origin.with_value(value))

    @abc.abstractmethod
    def flush(self) -> None:
        """Emit what is buffered."""

    def _emit_rows(
        self,
        flags: int,
        routes: routing.Int64Array,
        orders: routing.Int64Array | None,
        keys: Sequence[bytes] | None,
        values: Sequence[bytes],
    ) -> None:
        dest = self.edge.dest | flags
        limit = self._row_limit_bytes
        if not values:
            return
        if max(map(len, values)) <= limit:
            self._emit(rows.batch_of(dest, routes, orders, keys, values))
            return
        short = [row for row, value in enumerate(values) if len(value) <= limit]
        if short:
            index = np.array(short, np.int64)
            self._emit(
                rows.batch_of(
                    dest,
                    routes[index],
                    None if orders is None else orders[index],
                    None if keys is None else [keys[row] for row in short],
                    [values[row] for row in short],
                )
            )
        per_batch = max(1, FLUSH_BYTES // limit)
        for row, value in enumerate(values):
            if len(value) <= limit:
                continue
            if len(value) > self._max_element_bytes:
                raise EncodingError(
                    f"an element of {len(value)} bytes is over the limit of "
                    f"{self._max_element_bytes} bytes for what may cross to {self.edge.name}"
                )
            pieces: list[bytes] = []
            for piece in rows.cut(value, limit):
                pieces.append(piece)
                if len(pieces) == per_batch:
                    self._emit_pieces(dest, routes, orders, keys, row, pieces)
                    pieces = []
            if pieces:
                self._emit_pieces(dest, routes, orders, keys, row, pieces)

    def _emit_pieces(
        self,
        dest: int,
        routes: routing.Int64Array,
        orders: routing.Int64Array | None,
        keys: Sequence[bytes] | None,
        row: int,
        pieces: list[bytes],
    ) -> None:
        count = len(pieces)
        self._emit(
            rows.batch_of(
                dest | rows.PIECE,
                np.full(count, routes[row]),
                None if orders is None else np.full(count, orders[row]),
                None if keys is None else [keys[row]] * count,
                pieces,
            )
        )

    def _fail(self, what: str, value: Any, error: Exception) -> EncodingError:
        return EncodingError(
            f"the {what} of an element on its way to {self.edge.name} cannot be encoded: "
            f"{type(value).__name__} {value!r:.200}: {type(error).__name__}: {error}"
        )


class GroupWriter(Writer):
    """Rows of key and value, exploded per window, for a destination that groups."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, outlet)
        element_coder = coder.wrapped_value_coder
        self._encode_key = deterministic_key_coder(element_coder.key_coder()).get_impl().encode
        self._encode_value = element_coder.value_coder().get_impl().encode
        self._encode_window = coder.window_coder.get_impl().encode
        self._coded_windows: dict[Any, bytes] = {}
        self._sign = {TimestampCombiner.EARLIEST: 1, TimestampCombiner.LATEST: -1}.get(
            edge.timestamp_combiner, 0
        )
        if edge.coded_windowing:
            self._sign = 0  # the trigger driver looks at the timestamps itself
            windowed = WindowedValueCoder(element_coder.value_coder(), coder.window_coder)
            self._encode_value = windowed.get_impl().encode
            self.accept = self._accept_windowed  # type: ignore[method-assign]
        elif edge.is_global and not self._sign:
            self.accept = self._accept_global  # type: ignore[method-assign]
            self.accept_chunk = self._accept_global_chunk  # type: ignore[method-assign]

    def _accept_global(self, windowed_value: WindowedValue) -> None:
        key, value = windowed_value.value
        try:
            coded_key = self._encode_key(key)
            coded_value = self._encode_value(value)
        except Exception as error:
            raise self._fail("key or value", (key, value), error) from error
        self._keys.append(coded_key)
        self._values.append(coded_value)
        self._size += len(coded_key) + len(coded_value) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self.flush()

    def _accept_global_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        """Where neither timestamp nor window is needed: columns at once."""
        encode_key, encode_value = self._encode_key, self._encode_value
        element: Any = None
        try:
            first = len(self._keys)
            for element in values:
                key, value = element
                self._keys.append(encode_key(key))
                self._values.append(encode_value(value))
        except Exception as error:
            raise self._fail("key or value", element, error) from error
        self._size += (
            sum(map(len, self._keys[first:]))
            + sum(map(len, self._values[first:]))
            + ROW_BYTES * len(values)
        )
        if self._size > FLUSH_BYTES:
            self.flush()

    def _accept_windowed(self, windowed_value: WindowedValue) -> None:
        """One row per element, with its windows: the reader groups them."""
        self._accept_global(
            windowed_value.with_value(
                (windowed_value.value[0], windowed_value.with_value(windowed_value.value[1]))
            )
        )

    def accept(self, windowed_value: WindowedValue) -> None:
        key, value = windowed_value.value
        try:
            coded_key = self._encode_key(key)
            coded_value = self._encode_value(value)
        except Exception as error:
            raise self._fail("key or value", (key, value), error) from error
        order = self._sign * windowed_value.timestamp_micros
        for window in windowed_value.windows:
            self._keys.append(
                coded_key if self.edge.is_global else self._with_window(coded_key, window)
            )
            self._values.append(coded_value)
            self._orders.append(order)
            self._size += len(coded_key) + len(coded_value) + 2 * ROW_BYTES
        if self._size > FLUSH_BYTES:
            self.flush()

    def _with_window(self, coded_key: bytes, window: Any) -> bytes:
        coded_window = self._coded_windows.get(window)
        if coded_window is None:
            if len(self._coded_windows) > 10_000:
                self._coded_windows.clear()
            coded_window = self._coded_windows[window] = self._encode_window(window)
        return join_key(coded_key, coded_window)

    def flush(self) -> None:
        keys, values, self._keys, self._values, self._size = self._keys, self._values, [], [], 0
        if not values:
            return
        orders = np.array(self._orders, np.int64) if self._sign else None
        self._orders = []
        if max(map(len, keys)) <= LONG_KEY_BYTES:
            routes = routing.routes_of_keys(keys, len(keys), self.edge.code)
            self._emit_rows(0, routes, orders, keys, values)
            return
        for long, flag in ((False, 0), (True, rows.LONG_KEY)):
            picked = [row for row, key in enumerate(keys) if (len(key) > LONG_KEY_BYTES) is long]
            if not picked:
                continue
            some_keys = [keys[row] for row in picked]
            some_values = [values[row] for row in picked]
            if long:
                some_values = [
                    put_before(key, value)
                    for key, value in zip(some_keys, some_values, strict=True)
                ]
                some_keys = [routing.digest_of(key) for key in some_keys]
            routes = routing.routes_of_keys(some_keys, len(some_keys), self.edge.code)
            some_orders = None if orders is None else orders[np.array(picked, np.int64)]
            self._emit_rows(flag, routes, some_orders, some_keys, some_values)


class ElementWriter(Writer):
    """Whole elements, for a destination that does not group; spread evenly over partitions."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, outlet)
        self._encode_bare = coder.wrapped_value_coder.get_impl().encode
        self._encode_windowed = coder.get_impl().encode
        self._is_global = edge.is_global
        self._windowed_values: list[bytes] = []
        self._targets = np.array(
            routing.routes_to_partitions(edge.code, outlet.partitions), np.int64
        )
        # Tasks start at different partitions, else few elements would all land on the first.
        self._next = outlet.first % outlet.partitions

    def accept(self, windowed_value: WindowedValue) -> None:
        try:
            if self._is_global and _is_bare(windowed_value):
                coded = self._encode_bare(windowed_value.value)
                self._values.append(coded)
            else:
                coded = self._encode_windowed(windowed_value)
                self._windowed_values.append(coded)
        except Exception as error:
            raise self._fail("value", windowed_value.value, error) from error
        self._size += len(coded) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self.flush()

    def accept_chunk(self, values: list[Any], origins: list[WindowedValue]) -> None:
        if not self._is_global or not all(map(_is_bare, origins)):
            super().accept_chunk(values, origins)
            return
        value: Any = None
        size = 0
        try:
            encode, append = self._encode_bare, self._values.append
            for value in values:
                coded = encode(value)
                size += len(coded)
                append(coded)
        except Exception as error:
            raise self._fail("value", value, error) from error
        self._size += size + ROW_BYTES * len(values)
        if self._size > FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        bare, windowed = self._values, self._windowed_values
        self._values, self._windowed_values, self._size = [], [], 0
        self._emit_rows(0, self._routes(len(bare)), None, None, bare)
        self._emit_rows(rows.WINDOWED, self._routes(len(windowed)), None, None, windowed)

    def _routes(self, count: int) -> routing.Int64Array:
        places = (np.arange(count) + self._next) % len(self._targets)
        self._next = (self._next + count) % len(self._targets)
        return self._targets[places]


def _is_bare(windowed_value: WindowedValue) -> bool:
    """Whether an element in the global window is nothing more than its value."""
    return (
        windowed_value.timestamp_micros == _MIN_US and windowed_value.pane_info is PANE_INFO_UNKNOWN
    )


class SizedWriter(ElementWriter):
    """Sized restrictions: each goes where this task has sent the least work so far."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, coder, outlet)
        count = outlet.partitions
        self._loads = [(0.0, (place + self._next) % count, place) for place in range(count)]
        heapq.heapify(self._loads)
        self._sized_routes: list[int] = []

    accept_chunk = Writer.accept_chunk

    def accept(self, windowed_value: WindowedValue) -> None:
        _, size = windowed_value.value
        load, turn, place = self._loads[0]
        heapq.heapreplace(self._loads, (load + max(float(size), 1.0), turn, place))
        self._sized_routes.append(int(self._targets[place]))
        try:
            coded = self._encode_windowed(windowed_value)
        except Exception as error:
            raise self._fail("restriction", windowed_value.value, error) from error
        self._windowed_values.append(coded)
        self._size += len(coded) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self.flush()

    def _routes(self, count: int) -> routing.Int64Array:
        routes, self._sized_routes = self._sized_routes[:count], self._sized_routes[count:]
        return np.array(routes, np.int64)


@dataclass(slots=True)
class _Run:
    """Values of one key and window that will share a row."""

    values: list[bytes]
    size: int


class SideInputWriter(Writer):
    """Rows that readers look up: by window, and by key where the view is a map.

    A row holds many values of one key and window: their nested encodings one behind the
    other, as the Fn API hands them to an SDK. Its ``order`` says how many they are.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, outlet)
        element_coder = coder.wrapped_value_coder
        self._encode_window = coder.window_coder.get_impl().encode
        self._coded_windows: dict[Any, bytes] = {}
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
            self._global_key = join_key(b"", self._encode_window(GlobalWindow()))
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
            raise self._fail("value", value, error) from error
        self._count += len(values)
        if stream.size() >= self._run_bytes:
            self._end_stream()

    def _end_stream(self) -> None:
        coded, count = self._stream.get(), self._count
        self._stream, self._count = create_OutputStream(), 0
        self._add_row(self._global_key, coded, count)

    def accept(self, windowed_value: WindowedValue) -> None:
        try:
            if self._is_multimap:
                key, value = windowed_value.value
                coded_key = self._encode_key(key)
            else:
                value, coded_key = windowed_value.value, b""
            coded_value = self._encode_value(value)
        except Exception as error:
            raise self._fail("value", windowed_value.value, error) from error
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
        if self._size > FLUSH_BYTES:
            self.flush()

    def _coded_window(self, window: Any) -> bytes:
        coded = self._coded_windows.get(window)
        if coded is None:
            if len(self._coded_windows) > 10_000:
                self._coded_windows.clear()
            coded = self._coded_windows[window] = self._encode_window(window)
        return coded

    def _add_row(self, key: bytes, coded_values: bytes, count: int) -> None:
        self._keys.append(key)
        self._values.append(coded_values)
        self._orders.append(count)
        self._size += len(key) + len(coded_values) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self._flush_rows()

    def flush(self) -> None:
        if self.edge.is_global and not self._is_multimap:
            if self._count:
                self._end_stream()
        else:
            runs, self._runs = self._runs, {}
            self._keys.extend(runs)
            self._values.extend(b"".join(run.values) for run in runs.values())
            self._orders.extend(len(run.values) for run in runs.values())
        self._flush_rows()

    def _flush_rows(self) -> None:
        keys, self._keys = self._keys, []
        values, self._values = self._values, []
        orders, self._orders = np.array(self._orders, np.int64), []
        self._size = sum(run.size + ROW_BYTES for run in self._runs.values())
        routes = routing.routes_of_keys(keys, len(keys), self.edge.code)
        self._emit_rows(0, routes, orders, keys, values)


def writer_for(edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> Writer:
    """Choose the writer for an edge; ``coder`` is that of the windowed elements that arrive."""
    match edge.delivery:
        case Delivery.GROUP_BY_KEY:
            return GroupWriter(edge, coder, outlet)
        case Delivery.SIDE_INPUT:
            return SideInputWriter(edge, coder, outlet)
        case Delivery.REDISTRIBUTE_BY_SIZE:
            return SizedWriter(edge, coder, outlet)
        case Delivery.REDISTRIBUTE | Delivery.POINTWISE:
            return ElementWriter(edge, coder, outlet)
