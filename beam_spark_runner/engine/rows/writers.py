"""From elements to rows: one writer for each destination that a stage's output goes to.

``accept`` is called once per element straight from Beam's compiled code, so
that it does as little as it can; columns are built for thousands at a time.
"""

import heapq
from typing import Any

import numpy as np
from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue
from typing_extensions import override

from beam_spark_runner.core import routing
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.rows.group_writer import GroupWriter
from beam_spark_runner.engine.rows.keyed_writer import KeyedWriter
from beam_spark_runner.engine.rows.side_input_writer import SideInputWriter
from beam_spark_runner.engine.rows.table_rows import count_rows
from beam_spark_runner.engine.rows.view_rows import ViewRowWriter
from beam_spark_runner.engine.rows.writing import (
    FLUSH_BYTES,
    ROW_BYTES,
    Outlet,
    Writer,
)
from beam_spark_runner.plan.model import Delivery


class ElementRowWriter(Writer):
    """Writes whole elements, for a destination that does not group, evenly to all partitions.

    Each element goes to the place after that of the previous one. Thus partitions are even also if
    a later segment reads the rows, with more partitions than this task knows of.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, outlet)
        self._encode_bare = coder.wrapped_value_coder.get_impl().encode
        self._encode_windowed = coder.get_impl().encode
        self._is_global = edge.is_global
        self._windowed_values: list[bytes] = []
        self._next = routing.first_place(outlet.first, outlet.partitions)

    @override
    def accept(self, windowed_value: WindowedValue) -> None:
        try:
            if self._is_global and _is_bare(windowed_value):
                coded = self._encode_bare(windowed_value.value)
                self._values.append(coded)
            else:
                coded = self._encode_windowed(windowed_value)
                self._windowed_values.append(coded)
        except Exception as error:
            raise self._encoding_error("value", windowed_value.value, error) from error
        self._size += len(coded) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self.flush()

    @override
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
            raise self._encoding_error("value", value, error) from error
        self._size += size + ROW_BYTES * len(values)
        if self._size > FLUSH_BYTES:
            self.flush()

    @override
    def flush(self) -> None:
        bare, windowed = self._values, self._windowed_values
        self._values, self._windowed_values, self._size = [], [], 0
        self._emit_rows(0, self._routes(len(bare)), None, None, bare)
        self._emit_rows(schema.WINDOWED, self._routes(len(windowed)), None, None, windowed)

    def _routes(self, count: int) -> routing.Int64Array:
        places = (np.arange(count, dtype=np.int64) + self._next) % routing.PLACES
        self._next += count
        return routing.routes_to_places(places, self.edge.code)


class PartitionWriter(ElementRowWriter):
    """Writes elements that stay together, for a reader that takes those of a task as one bundle.

    If they pass an exchange on their way to a later segment, all go to the partition with the
    number of the task.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, coder, outlet)
        place = np.array([outlet.first % routing.PLACES], np.int64)
        (self._route,) = routing.routes_to_places(place, edge.code)

    @override
    def _routes(self, count: int) -> routing.Int64Array:
        return np.full(count, self._route, np.int64)


def _is_bare(windowed_value: WindowedValue) -> bool:
    """Whether an element in the global window has the minimum timestamp and no pane."""
    return (
        windowed_value.timestamp_micros == MIN_US and windowed_value.pane_info is PANE_INFO_UNKNOWN
    )


class SizedWriter(ElementRowWriter):
    """Writes sized restrictions, each to the partition that has got the least work from this task.

    The largest of those that are flushed together are placed first. Those of one partition go to
    its places in turn: if a later segment has more partitions, they are spread over these.
    """

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, coder, outlet)
        count = outlet.partitions
        self._partitions = count
        # Of partitions with equal loads, the one that this task begins at comes first.
        self._loads = [(0.0, (index - self._next) % count, index) for index in range(count)]
        heapq.heapify(self._loads)
        first = self._next // count * count
        self._places = [first + partition for partition in range(count)]  # the next of each
        self._sizes: list[float] = []

    accept_chunk = Writer.accept_chunk

    @override
    def accept(self, windowed_value: WindowedValue) -> None:
        _, size = windowed_value.value
        self._sizes.append(max(float(size), 1.0))
        try:
            coded = self._encode_windowed(windowed_value)
        except Exception as error:
            raise self._encoding_error("restriction", windowed_value.value, error) from error
        self._windowed_values.append(coded)
        self._size += len(coded) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self.flush()

    @override
    def _routes(self, count: int) -> routing.Int64Array:
        sizes, self._sizes = self._sizes[:count], self._sizes[count:]
        places = np.zeros(count, np.int64)
        for row in sorted(range(count), key=sizes.__getitem__, reverse=True):
            load, turn, partition = self._loads[0]
            heapq.heapreplace(self._loads, (load + sizes[row], turn, partition))
            places[row] = self._places[partition] % routing.PLACES
            self._places[partition] += self._partitions
        return routing.routes_to_places(places, self.edge.code)


class ResidualWriter(SizedWriter):
    """Writes residuals for a later Spark job; ``order`` says when they are due."""

    def __init__(self, edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> None:
        super().__init__(edge, coder, outlet)
        self._due_us: list[int] = []

    def accept_residual(self, windowed_value: WindowedValue, due_us: int) -> None:
        """Take a residual, and the processing time before which it must not run, or 0."""
        self._due_us.append(due_us)
        self.accept(windowed_value)

    @override
    def flush(self) -> None:
        windowed, due_us = self._windowed_values, np.array(self._due_us, np.int64)
        self._windowed_values, self._due_us, self._size = [], [], 0
        self._emit_rows(schema.WINDOWED, self._routes(len(windowed)), due_us, None, windowed)


class TableWriter(Writer):
    """Writes Arrow batches of a table, for one Spark write. ``order`` is their number of rows."""

    def __init__(self, edge: Edge, outlet: Outlet) -> None:
        super().__init__(edge, outlet)
        self._counts: list[int] = []

    @override
    def accept(self, windowed_value: WindowedValue) -> None:
        coded = windowed_value.value
        self._values.append(coded)
        self._counts.append(count_rows(coded))
        self._size += len(coded) + ROW_BYTES
        if self._size > FLUSH_BYTES:
            self.flush()

    @override
    def flush(self) -> None:
        values, counts = self._values, np.array(self._counts, np.int64)
        self._values, self._counts, self._size = [], [], 0
        self._emit_rows(0, np.zeros(len(values), np.int64), counts, None, values)


def writer_for(edge: Edge, coder: WindowedValueCoder, outlet: Outlet) -> Writer:
    """Choose the writer for an edge; ``coder`` is that of the windowed elements that arrive."""
    match edge.delivery:
        case Delivery.GROUP_BY_KEY:
            return GroupWriter(edge, coder, outlet)
        case Delivery.BY_KEY:
            return KeyedWriter(edge, coder, outlet)
        case Delivery.SIDE_INPUT if edge.coded_windowing:
            return ViewRowWriter(edge, coder, outlet)
        case Delivery.SIDE_INPUT:
            return SideInputWriter(edge, coder, outlet)
        case Delivery.TABLE:
            return TableWriter(edge, outlet)
        case Delivery.REDISTRIBUTE_BY_SIZE:
            return SizedWriter(edge, coder, outlet)
        case Delivery.POINTWISE if edge.is_partition:
            return PartitionWriter(edge, coder, outlet)
        case Delivery.REDISTRIBUTE | Delivery.POINTWISE:
            return ElementRowWriter(edge, coder, outlet)
